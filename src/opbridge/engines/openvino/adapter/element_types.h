// The mapping between OpenVINO's element types and those of the kernels' C ABI.
#pragma once

#include <openvino/core/type/element_type.hpp>

#include "opbridge/abi.h"
#include "opbridge/error.h"

namespace opbridge::openvino {

struct ElementPair {
  int32_t dtype;
  ov::element::Type_t type;
};

inline constexpr ElementPair element_pairs[] = {
    {OPBRIDGE_FLOAT32, ov::element::Type_t::f32},   {OPBRIDGE_FLOAT64, ov::element::Type_t::f64},
    {OPBRIDGE_FLOAT16, ov::element::Type_t::f16},   {OPBRIDGE_BFLOAT16, ov::element::Type_t::bf16},
    {OPBRIDGE_BOOL, ov::element::Type_t::boolean},  {OPBRIDGE_INT8, ov::element::Type_t::i8},
    {OPBRIDGE_UINT8, ov::element::Type_t::u8},      {OPBRIDGE_INT16, ov::element::Type_t::i16},
    {OPBRIDGE_UINT16, ov::element::Type_t::u16},    {OPBRIDGE_INT32, ov::element::Type_t::i32},
    {OPBRIDGE_UINT32, ov::element::Type_t::u32},    {OPBRIDGE_INT64, ov::element::Type_t::i64},
    {OPBRIDGE_UINT64, ov::element::Type_t::u64},
};

// OPBRIDGE_ABSENT for an unsupported type.
inline int32_t dtype_of_element(const ov::element::Type& type) {
  for (const ElementPair& pair : element_pairs)
    if (type == pair.type) return pair.dtype;
  return OPBRIDGE_ABSENT;
}

inline ov::element::Type element_of_dtype(int32_t dtype) {
  for (const ElementPair& pair : element_pairs)
    if (dtype == pair.dtype) return pair.type;
  throw Error("an unknown element type");
}

}  // namespace opbridge::openvino
