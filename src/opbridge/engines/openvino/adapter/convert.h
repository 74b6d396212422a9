// Conversion of elements between types: OpenVINO's CPU plugin passes and expects narrower types than the model states.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "opbridge/abi.h"
#include "opbridge/error.h"
#include "opbridge/types.h"

namespace opbridge::openvino {

// Calls visit with a pointer of the C++ type of a dtype.
template <class Visit>
void with_type(int32_t dtype, const void* data, const Visit& visit) {
  switch (dtype) {
    case OPBRIDGE_FLOAT32: return visit(static_cast<const float*>(data));
    case OPBRIDGE_FLOAT64: return visit(static_cast<const double*>(data));
    case OPBRIDGE_FLOAT16: return visit(static_cast<const half*>(data));
    case OPBRIDGE_BFLOAT16: return visit(static_cast<const bfloat16*>(data));
    case OPBRIDGE_INT8: return visit(static_cast<const int8_t*>(data));
    case OPBRIDGE_BOOL:
    case OPBRIDGE_UINT8: return visit(static_cast<const uint8_t*>(data));
    case OPBRIDGE_INT16: return visit(static_cast<const int16_t*>(data));
    case OPBRIDGE_UINT16: return visit(static_cast<const uint16_t*>(data));
    case OPBRIDGE_INT32: return visit(static_cast<const int32_t*>(data));
    case OPBRIDGE_UINT32: return visit(static_cast<const uint32_t*>(data));
    case OPBRIDGE_INT64: return visit(static_cast<const int64_t*>(data));
    case OPBRIDGE_UINT64: return visit(static_cast<const uint64_t*>(data));
    default: throw Error("elements of an unknown type");
  }
}

inline bool is_floating(int32_t dtype) {
  return dtype == OPBRIDGE_FLOAT32 || dtype == OPBRIDGE_FLOAT64 || dtype == OPBRIDGE_FLOAT16 ||
         dtype == OPBRIDGE_BFLOAT16;
}

// Whether elements of the two types have the same bytes.
inline bool same_bytes(int32_t one, int32_t other) {
  const auto plain = [](int32_t dtype) { return dtype == OPBRIDGE_BOOL ? int32_t{OPBRIDGE_UINT8} : dtype; };
  return plain(one) == plain(other);
}

template <class Between>
void convert_through(const void* from, int32_t from_dtype, void* to, int32_t to_dtype, int64_t count) {
  Between block[256];
  for (int64_t begin = 0; begin < count; begin += 256) {
    const int64_t size = std::min<int64_t>(256, count - begin);
    with_type(from_dtype, from, [&](const auto* data) {
      for (int64_t i = 0; i < size; ++i) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(*data)>>) block[i] = static_cast<Between>(data[begin + i]);
        else block[i] = static_cast<Between>(static_cast<float>(data[begin + i]));
      }
    });
    with_type(to_dtype, to, [&](const auto* data) {
      using T = std::decay_t<decltype(*data)>;
      T* target = const_cast<T*>(data) + begin;
      for (int64_t i = 0; i < size; ++i) {
        if constexpr (std::is_arithmetic_v<T>) target[i] = static_cast<T>(block[i]);
        else target[i] = T(static_cast<float>(block[i]));
      }
    });
  }
}

inline void convert(const void* from, int32_t from_dtype, void* to, int32_t to_dtype, int64_t count) {
  if (is_floating(from_dtype) || is_floating(to_dtype)) convert_through<double>(from, from_dtype, to, to_dtype, count);
  else convert_through<int64_t>(from, from_dtype, to, to_dtype, count);
}

}  // namespace opbridge::openvino
