// The attributes of a node, read once when its kernel is created.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c_api.h"
#include "opbridge/abi.h"
#include "opbridge/attributes.h"
#include "opbridge/tensor.h"

namespace opbridge::onnxruntime {

// Reads the attributes of a node for its kernel.
class AttributeReader {
 public:
  AttributeReader(const OrtApi* api, const OrtKernelInfo* info) : api_(api), info_(info) {}

  Attributes read(const opbridge_operator& op) const {
    Attributes result;
    for (int32_t i = 0; i < op.attribute_count; ++i) {
      const opbridge_attribute& attribute = op.attributes[i];
      const bool found = read_as(attribute.kind, attribute.name, result);
      if (found && !is_empty_list(result.values.back())) continue;
      refuse_other_kind(op, attribute, found);
      if (!found) result.set_default(op, attribute);
    }
    return result;
  }

 private:
  static bool is_empty_list(const opbridge_value& value) {
    return value.count == 0 && (value.kind == OPBRIDGE_KIND_INTS || value.kind == OPBRIDGE_KIND_FLOATS);
  }

  // ONNX Runtime has no status for a missing attribute, and returns an empty list for one of another kind, so all kinds
  // are tried.
  void refuse_other_kind(const opbridge_operator& op, const opbridge_attribute& attribute, bool found) const {
    Attributes tried;
    for (int32_t kind = OPBRIDGE_KIND_INT; kind <= OPBRIDGE_KIND_TENSOR; ++kind)
      if (kind != attribute.kind && read_as(kind, attribute.name, tried) && !is_empty_list(tried.values.back()))
        throw Error(op.domain, "::", op.name, ": attribute '", attribute.name, "' is ", kind_name(kind),
                    ", but the kernel takes ", kind_name(attribute.kind));
    size_t size = 0;
    if (!found && ok(KernelInfoGetAttributeArray_int64(api_, info_, attribute.name, nullptr, &size)))
      throw Error(op.domain, "::", op.name, ": attribute '", attribute.name, "' is of a kind that ONNX Runtime does not hand ",
                  "to kernels; a list of strings must be given as a tensor of strings");
  }

  bool read_as(int32_t kind, const char* name, Attributes& result) const {
    size_t size = 0;
    switch (kind) {
      case OPBRIDGE_KIND_INT: {
        std::vector<int64_t> value(1);
        if (!ok(KernelInfoGetAttribute_int64(api_, info_, name, value.data()))) return false;
        result.set_ints(std::move(value), kind);
        return true;
      }
      case OPBRIDGE_KIND_FLOAT: {
        std::vector<float> value(1);
        if (!ok(KernelInfoGetAttribute_float(api_, info_, name, value.data()))) return false;
        result.set_floats(value, kind);
        return true;
      }
      case OPBRIDGE_KIND_STRING: {
        if (!ok(KernelInfoGetAttribute_string(api_, info_, name, nullptr, &size))) return false;
        std::string value(size, '\0');
        if (!ok(KernelInfoGetAttribute_string(api_, info_, name, value.data(), &size))) return false;
        value.resize(size - 1);  // the size counts the NUL
        result.set_string(std::move(value));
        return true;
      }
      case OPBRIDGE_KIND_INTS: {
        if (!ok(KernelInfoGetAttributeArray_int64(api_, info_, name, nullptr, &size))) return false;
        std::vector<int64_t> value(size);
        if (size > 0 && !ok(KernelInfoGetAttributeArray_int64(api_, info_, name, value.data(), &size))) return false;
        result.set_ints(std::move(value), kind);
        return true;
      }
      case OPBRIDGE_KIND_FLOATS: {
        if (!ok(KernelInfoGetAttributeArray_float(api_, info_, name, nullptr, &size))) return false;
        std::vector<float> value(size);
        if (size > 0 && !ok(KernelInfoGetAttributeArray_float(api_, info_, name, value.data(), &size))) return false;
        result.set_floats(value, kind);
        return true;
      }
      default: return read_tensor(kind, name, result);
    }
  }

  // The C API can't read a list of strings, but a tensor of strings, which replaces it.
  bool read_tensor(int32_t kind, const char* name, Attributes& result) const {
    OrtAllocator* allocator = nullptr;
    check(api_, GetAllocatorWithDefaultOptions(api_, &allocator));
    OrtValue* raw = nullptr;
    if (!ok(KernelInfoGetAttribute_tensor(api_, info_, name, allocator, &raw))) return false;
    const OrtApi* api = api_;
    const auto release = [api](OrtValue* value) { ReleaseValue(api, value); };
    const std::unique_ptr<OrtValue, decltype(release)> value(raw, release);
    OrtTensorTypeAndShapeInfo* raw_shape = nullptr;
    check(api_, GetTensorTypeAndShape(api_, raw, &raw_shape));
    const auto release_shape = [api](OrtTensorTypeAndShapeInfo* shape) { ReleaseTensorTypeAndShapeInfo(api, shape); };
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(release_shape)> shape(raw_shape, release_shape);
    int dtype = 0;
    size_t rank = 0;
    check(api_, GetTensorElementType(api_, raw_shape, &dtype));
    check(api_, GetDimensionsCount(api_, raw_shape, &rank));
    std::vector<int64_t> sizes(rank);
    check(api_, GetDimensions(api_, raw_shape, sizes.data(), rank));
    const int64_t count = element_count(SizeSpan(sizes.data(), static_cast<int64_t>(rank)));
    constexpr int string_type = 8;
    if ((dtype == string_type) != (kind == OPBRIDGE_KIND_STRINGS)) return false;
    if (dtype == string_type) {
      result.set_strings(read_strings(raw, count));
      return true;
    }
    if (rank > OPBRIDGE_MAX_RANK) throw Error("attribute '", name, "' has more than ", OPBRIDGE_MAX_RANK, " dimensions");
    void* data = nullptr;
    check(api_, GetTensorMutableData(api_, raw, &data));
    result.set_tensor(data, count * opbridge_dtype_size(dtype), std::move(sizes), dtype);
    return true;
  }

  std::vector<std::string> read_strings(const OrtValue* value, int64_t count) const {
    std::vector<std::string> result(static_cast<size_t>(count));
    for (size_t i = 0; i < result.size(); ++i) {
      size_t size = 0;
      check(api_, GetStringTensorElementLength(api_, value, i, &size));
      result[i].resize(size);
      check(api_, GetStringTensorElement(api_, value, size, i, result[i].data()));
    }
    return result;
  }

  bool ok(OrtStatus* status) const { return succeeded(api_, status); }

  const OrtApi* api_;
  const OrtKernelInfo* info_;
};

}  // namespace opbridge::onnxruntime
