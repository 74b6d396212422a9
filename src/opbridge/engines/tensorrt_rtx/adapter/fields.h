// The attributes of a node, which TensorRT passes to a plugin as fields, and reads back for the engine file.
#pragma once

#include <NvInfer.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "opbridge/abi.h"
#include "opbridge/error.h"

namespace opbridge::tensorrt {

// The field type of an attribute. Lists of strings and tensors have none.
inline nvinfer1::PluginFieldType field_type(int32_t kind) {
  using Type = nvinfer1::PluginFieldType;
  switch (kind) {
    case OPBRIDGE_KIND_INT:
    case OPBRIDGE_KIND_INTS: return Type::kINT64;
    case OPBRIDGE_KIND_FLOAT:
    case OPBRIDGE_KIND_FLOATS: return Type::kFLOAT32;
    case OPBRIDGE_KIND_STRING: return Type::kCHAR;
    default: return Type::kUNKNOWN;
  }
}

// Reads and keeps the attributes in the order of the operator's table. Copies read the fields again.
class Attributes {
 public:
  Attributes(const opbridge_operator& op, const nvinfer1::PluginFieldCollection* given) : op_(op) {
    for (int32_t i = 0; i < given->nbFields; ++i) keep(given->fields[i]);
    read();
  }
  Attributes(const Attributes& other) : op_(other.op_), kept_(other.kept_) { read(); }
  Attributes& operator=(const Attributes&) = delete;

  const opbridge_value* values() const { return values_.data(); }
  const nvinfer1::PluginFieldCollection* fields() const { return &collection_; }

 private:
  struct Kept {
    std::string name;
    std::vector<char> data;
    nvinfer1::PluginFieldType type;
    int32_t length;
  };

  static int32_t element_size(nvinfer1::PluginFieldType type) {
    using Type = nvinfer1::PluginFieldType;
    switch (type) {
      case Type::kCHAR: return 1;
      case Type::kINT32:
      case Type::kFLOAT32: return 4;
      case Type::kINT64:
      case Type::kFLOAT64: return 8;
      default: return 0;
    }
  }

  void keep(const nvinfer1::PluginField& field) {
    const int32_t size = element_size(field.type);
    if (size == 0) return;
    const char* data = static_cast<const char*>(field.data);
    const size_t bytes = data == nullptr ? 0 : static_cast<size_t>(size) * static_cast<size_t>(field.length);
    kept_.push_back({field.name, std::vector<char>(data, data + bytes), field.type, field.length});
  }

  void read() {
    for (const Kept& kept : kept_)
      fields_.emplace_back(kept.name.c_str(), kept.data.data(), kept.type, kept.length);
    collection_ = {static_cast<int32_t>(fields_.size()), fields_.data()};
    for (int32_t i = 0; i < op_.attribute_count; ++i) values_.push_back(value(op_.attributes[i]));
  }

  opbridge_value value(const opbridge_attribute& attribute) {
    for (const Kept& kept : kept_)
      if (kept.name == attribute.name) return value(attribute, kept);
    if (attribute.required)
      throw Error(op_.domain, "::", op_.name, ": the node has no attribute '", attribute.name,
                  "', which is required, or TensorRT's parser hands over none of its type");
    return attribute.default_value;
  }

  opbridge_value value(const opbridge_attribute& attribute, const Kept& kept) {
    switch (attribute.kind) {
      case OPBRIDGE_KIND_INT:
      case OPBRIDGE_KIND_INTS: return numbers(ints_.emplace_back(), kept, attribute.kind);
      case OPBRIDGE_KIND_FLOAT:
      case OPBRIDGE_KIND_FLOATS: return numbers(floats_.emplace_back(), kept, attribute.kind);
      case OPBRIDGE_KIND_STRING: {
        // A NUL at the end may or may not be counted.
        const std::string& text = texts_.emplace_back(kept.data.data(), ::strnlen(kept.data.data(), kept.data.size()));
        return {text.c_str(), static_cast<int64_t>(text.size()), attribute.kind};
      }
      default: throw Error(op_.domain, "::", op_.name, ": TensorRT hands over no attribute like '", attribute.name, "'");
    }
  }

  // TensorRT's parser passes integers in 32 or 64 bits.
  template <class Number>
  static opbridge_value numbers(std::vector<Number>& target, const Kept& kept, int32_t kind) {
    using Type = nvinfer1::PluginFieldType;
    switch (kept.type) {
      case Type::kINT32: append<int32_t>(target, kept); break;
      case Type::kINT64: append<int64_t>(target, kept); break;
      case Type::kFLOAT32: append<float>(target, kept); break;
      case Type::kFLOAT64: append<double>(target, kept); break;
      default: break;
    }
    return {target.data(), static_cast<int64_t>(target.size()), kind};
  }

  template <class Given, class Number>
  static void append(std::vector<Number>& target, const Kept& kept) {
    for (size_t at = 0; at + sizeof(Given) <= kept.data.size(); at += sizeof(Given)) {
      Given number;
      std::memcpy(&number, kept.data.data() + at, sizeof number);
      target.push_back(static_cast<Number>(number));
    }
  }

  const opbridge_operator& op_;
  std::vector<Kept> kept_;
  std::vector<nvinfer1::PluginField> fields_;
  nvinfer1::PluginFieldCollection collection_;
  std::vector<opbridge_value> values_;
  std::deque<std::vector<int64_t>> ints_;
  std::deque<std::vector<double>> floats_;
  std::deque<std::string> texts_;
};

}  // namespace opbridge::tensorrt
