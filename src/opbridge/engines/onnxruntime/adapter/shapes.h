// Shape inference while ONNX Runtime builds its graph, as far as the shapes are known.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attributes.h"
#include "c_api.h"
#include "opbridge/abi.h"
#include "opbridge/tensor.h"

namespace opbridge::onnxruntime {

// Whether shapes can be inferred for this operator. The context does not report which inputs and outputs a node leaves out
// (version 1.17 ends the process for those), and can't read tensor attributes.
inline bool can_infer_shapes(const opbridge_operator& op) {
  if (op.output_count != 1 || op.outputs[0].flags != 0) return false;
  for (int32_t i = 0; i < op.input_count; ++i)
    if (op.inputs[i].flags & OPBRIDGE_OPTIONAL) return false;
  for (int32_t i = 0; i < op.attribute_count; ++i)
    if (op.attributes[i].kind == OPBRIDGE_KIND_STRINGS || op.attributes[i].kind == OPBRIDGE_KIND_TENSOR) return false;
  return true;
}

class ShapeInference {
 public:
  ShapeInference(const OrtApi* api, const OrtShapeInferContext* context, const opbridge_operator& op)
      : api_(api), context_(context), op_(op) {}

  // Sets the sizes of the output, all or none. Without them, the model's own value_info holds.
  void run() {
    if (!read_inputs()) return;
    const Attributes attributes = read_attributes();
    const opbridge_variant* variant =
        opbridge_find_variant(&op_, inputs_.data(), static_cast<int32_t>(inputs_.size()));
    if (variant == nullptr) return;
    int64_t sizes[OPBRIDGE_MAX_RANK];
    opbridge_tensor output{nullptr, sizes, nullptr, 0, opbridge_argument_dtype(&op_.outputs[0], variant)};
    opbridge_call call;
    call.op = &op_;
    call.inputs = inputs_.data();
    call.outputs = &output;
    call.attributes = attributes.values.data();
    call.host = nullptr;
    call.host_data = nullptr;
    call.input_count = static_cast<int32_t>(inputs_.size());
    call.output_count = 1;
    // An error here also occurs in the run, where it is reported.
    if (op_.shape(&call) != 0) return;
    for (int32_t axis = 0; axis < output.rank; ++axis)
      if (sizes[axis] < 0) return;
    set_output(output);
  }

 private:
  // Returns false if any size is not known. Rank 0 counts as unknown, since an input of unknown rank has it too.
  bool read_inputs() {
    size_t count = 0;
    check(api_, ShapeInferContext_GetInputCount(api_, context_, &count));
    sizes_.resize(count * OPBRIDGE_MAX_RANK);
    for (size_t i = 0; i < count; ++i) {
      OrtTensorTypeAndShapeInfo* info = nullptr;
      check(api_, ShapeInferContext_GetInputTypeShape(api_, context_, i, &info));
      size_t rank = 0;
      int dtype = 0;
      check(api_, GetDimensionsCount(api_, info, &rank));
      if (rank == 0 || rank > OPBRIDGE_MAX_RANK) return false;
      int64_t* sizes = &sizes_[i * OPBRIDGE_MAX_RANK];
      check(api_, GetDimensions(api_, info, sizes, rank));
      for (size_t axis = 0; axis < rank; ++axis)
        if (sizes[axis] < 0) return false;
      check(api_, GetTensorElementType(api_, info, &dtype));
      inputs_.push_back({nullptr, sizes, nullptr, static_cast<int32_t>(rank), dtype});
    }
    return static_cast<int32_t>(count) >= op_.input_count;
  }

  Attributes read_attributes() const {
    Attributes result;
    for (int32_t i = 0; i < op_.attribute_count; ++i) {
      const OrtOpAttr* attribute = nullptr;
      const char* name = op_.attributes[i].name;
      if (succeeded(api_, ShapeInferContext_GetAttribute(api_, context_, name, &attribute)) && attribute != nullptr)
        read(op_.attributes[i].kind, attribute, result);
      else
        result.set_default(op_, op_.attributes[i]);
    }
    return result;
  }

  // A null pointer requests the size; the status is then an error, because the size did not fit.
  template <class T>
  std::vector<T> read_list(const OrtOpAttr* attribute, int type) const {
    size_t bytes = 0;
    succeeded(api_, ReadOpAttr(api_, attribute, type, nullptr, 0, &bytes));
    std::vector<T> values(bytes / sizeof(T));
    if (!values.empty()) check(api_, ReadOpAttr(api_, attribute, type, values.data(), bytes, &bytes));
    return values;
  }

  void read(int32_t kind, const OrtOpAttr* attribute, Attributes& result) const {
    constexpr int type_int = 1, type_ints = 2, type_float = 3, type_floats = 4, type_string = 5;
    switch (kind) {
      case OPBRIDGE_KIND_INT: return result.set_ints(read_one<int64_t>(attribute, type_int), kind);
      case OPBRIDGE_KIND_INTS: return result.set_ints(read_list<int64_t>(attribute, type_ints), kind);
      case OPBRIDGE_KIND_FLOAT: return result.set_floats(read_one<float>(attribute, type_float), kind);
      case OPBRIDGE_KIND_FLOATS: return result.set_floats(read_list<float>(attribute, type_floats), kind);
      default: {
        std::vector<char> text = read_list<char>(attribute, type_string);
        // Version 1.17 counts a NUL, later ones don't.
        if (!text.empty() && text.back() == '\0') text.pop_back();
        result.set_string(std::string(text.begin(), text.end()));
      }
    }
  }

  template <class T>
  std::vector<T> read_one(const OrtOpAttr* attribute, int type) const {
    std::vector<T> value(1);
    size_t bytes = 0;
    check(api_, ReadOpAttr(api_, attribute, type, value.data(), sizeof(T), &bytes));
    return value;
  }

  void set_output(const opbridge_tensor& output) const {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check(api_, CreateTensorTypeAndShapeInfo(api_, &info));
    OrtStatus* status = SetTensorElementType(api_, info, output.dtype);
    if (status == nullptr) status = SetDimensions(api_, info, output.sizes, static_cast<size_t>(output.rank));
    // Version 1.17 requires as many names as sizes; an empty name means that the size is a number.
    std::vector<const char*> names(static_cast<size_t>(output.rank), "");
    if (status == nullptr) status = SetSymbolicDimensions(api_, info, names.data(), names.size());
    if (status == nullptr) status = ShapeInferContext_SetOutputTypeShape(api_, context_, 0, info);
    ReleaseTensorTypeAndShapeInfo(api_, info);
    check(api_, status);
  }

  const OrtApi* api_;
  const OrtShapeInferContext* context_;
  const opbridge_operator& op_;
  std::vector<int64_t> sizes_;
  std::vector<opbridge_tensor> inputs_;
};

}  // namespace opbridge::onnxruntime
