// The attributes of a node, read once when the model is converted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <openvino/frontend/node_context.hpp>
#include <openvino/frontend/onnx/decoder.hpp>

#include "element_types.h"
#include "opbridge/attributes.h"

namespace opbridge::openvino {

class AttributeReader {
 public:
  explicit AttributeReader(const ov::frontend::NodeContext& node) : node_(node) {}

  Attributes read(const opbridge_operator& op) const {
    Attributes result;
    for (int32_t i = 0; i < op.attribute_count; ++i) {
      const opbridge_attribute& attribute = op.attributes[i];
      const ov::Any given = node_.get_attribute_as_any(attribute.name);
      if (given.empty()) result.set_default(op, attribute);
      else if (!read_as(attribute.kind, given, result))
        throw Error(op.domain, "::", op.name, ": attribute '", attribute.name, "' is ", kind_name(kind_of(given)),
                    ", but the kernel takes ", kind_name(attribute.kind));
    }
    return result;
  }

 private:
  static int32_t kind_of(const ov::Any& given) {
    if (given.is<int64_t>()) return OPBRIDGE_KIND_INT;
    if (given.is<double>() || given.is<float>()) return OPBRIDGE_KIND_FLOAT;
    if (given.is<std::string>()) return OPBRIDGE_KIND_STRING;
    if (given.is<std::vector<int64_t>>()) return OPBRIDGE_KIND_INTS;
    if (given.is<std::vector<double>>() || given.is<std::vector<float>>()) return OPBRIDGE_KIND_FLOATS;
    if (given.is<std::vector<std::string>>()) return OPBRIDGE_KIND_STRINGS;
    return OPBRIDGE_KIND_TENSOR;
  }

  static bool read_as(int32_t kind, const ov::Any& given, Attributes& result) {
    const int32_t actual = kind_of(given);
    // OpenVINO does not report the element type of an empty list.
    const bool empty = (actual == OPBRIDGE_KIND_INTS && given.as<std::vector<int64_t>>().empty()) ||
                       (actual == OPBRIDGE_KIND_FLOATS && floats_of(given).empty());
    if (empty && kind == OPBRIDGE_KIND_INTS) return result.set_ints({}, kind), true;
    if (empty && kind == OPBRIDGE_KIND_FLOATS) return result.set_floats({}, kind), true;
    if (empty && kind == OPBRIDGE_KIND_STRINGS) return result.set_strings({}), true;
    // A list of strings may have been replaced by a tensor of strings, for engines without such lists.
    if (kind == OPBRIDGE_KIND_STRINGS && actual == OPBRIDGE_KIND_TENSOR) return read_tensor(given, true, result);
    if (kind != actual) return false;
    switch (kind) {
      case OPBRIDGE_KIND_INT: return result.set_ints({given.as<int64_t>()}, kind), true;
      case OPBRIDGE_KIND_FLOAT: return result.set_floats({float_of(given)}, kind), true;
      case OPBRIDGE_KIND_STRING: return result.set_string(given.as<std::string>()), true;
      case OPBRIDGE_KIND_INTS: return result.set_ints(given.as<std::vector<int64_t>>(), kind), true;
      case OPBRIDGE_KIND_FLOATS: return result.set_floats(floats_of(given), kind), true;
      case OPBRIDGE_KIND_STRINGS: return result.set_strings(given.as<std::vector<std::string>>()), true;
      default: return read_tensor(given, false, result);
    }
  }

  static float float_of(const ov::Any& given) {
    return given.is<float>() ? given.as<float>() : static_cast<float>(given.as<double>());
  }
  static std::vector<float> floats_of(const ov::Any& given) {
    if (given.is<std::vector<float>>()) return given.as<std::vector<float>>();
    const auto& values = given.as<std::vector<double>>();
    return std::vector<float>(values.begin(), values.end());
  }

  static bool read_tensor(const ov::Any& given, bool strings, Attributes& result) {
    if (!given.is<ov::frontend::onnx::DecoderBase::Ptr>()) return false;
    // The frontend has no other type of decoder with attributes. A dynamic_cast would link the library to the frontend's
    // library, which OpenVINO loads only when it reads a model.
    const auto decoder = std::static_pointer_cast<ov::frontend::onnx::DecoderBaseTensor>(
        given.as<ov::frontend::onnx::DecoderBase::Ptr>());
    const ov::frontend::onnx::TensorMetaInfo& info = decoder->get_tensor_info();
    if ((info.m_element_type == ov::element::string) != strings) return false;
    if (strings) {
      if (!info.m_tensor_data_any.is<std::vector<std::string>>()) return false;
      result.set_strings(info.m_tensor_data_any.as<std::vector<std::string>>());
      return true;
    }
    const ov::Shape shape = info.m_partial_shape.to_shape();
    const int32_t dtype = dtype_of_element(info.m_element_type);
    const int64_t bytes = static_cast<int64_t>(ov::shape_size(shape)) * opbridge_dtype_size(dtype);
    // Small integers that are not in raw_data are stored in wider ones.
    if (!info.m_is_raw && opbridge_dtype_size(dtype) < 4) return false;
    result.set_tensor(info.m_tensor_data, bytes, std::vector<int64_t>(shape.begin(), shape.end()), dtype);
    return true;
  }

  const ov::frontend::NodeContext& node_;
};

}  // namespace opbridge::openvino
