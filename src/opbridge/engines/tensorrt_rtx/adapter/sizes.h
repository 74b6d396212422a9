// The sizes of outputs as expressions of the inputs' sizes, which TensorRT requires before it knows the sizes.
#pragma once

#include <NvInfer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "opbridge/abi.h"
#include "opbridge/error.h"

namespace opbridge::tensorrt {

// A kernel's shape function computes with numbers. So it is called twice, with different numbers for the unknown sizes: an
// output's size that is equal both times is constant, and one that equals an input's size both times is that input's size.
// Any other size is computed from unknown sizes and can't be expressed.
class OutputSizes {
 public:
  OutputSizes(const opbridge_operator& op, const opbridge_value* attributes, const int32_t* output_types)
      : op_(op), attributes_(attributes), output_types_(output_types) {}

  void set(const nvinfer1::DimsExprs* inputs, int32_t input_count, const int32_t* input_types,
           nvinfer1::DimsExprs* outputs, nvinfer1::IExprBuilder& builder) {
    inputs_ = inputs;
    input_count_ = input_count;
    input_types_ = input_types;
    // Dimensions that must agree are often those of one axis, counted from either end.
    for (const Labels labels : {Labels::own, Labels::of_axis, Labels::of_axis_from_the_end}) {
      const Sizes first = ask(labels, 0), second = ask(labels, 1);
      if (first.outputs.empty() || second.outputs.empty()) continue;
      express(first, second, outputs, builder);
      return;
    }
    throw Error(error_);
  }

 private:
  enum class Labels { own, of_axis, of_axis_from_the_end };
  struct Sizes {
    std::vector<std::vector<int64_t>> inputs, outputs;
  };

  // Numbers that are unlikely to result from a computation with others.
  static int64_t number(int32_t label, int32_t round) {
    static constexpr int64_t primes[2][16] = {
        {1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069, 1087, 1091, 1093, 1097},
        {2003, 2011, 2017, 2027, 2029, 2039, 2053, 2063, 2069, 2081, 2083, 2087, 2089, 2099, 2111, 2113}};
    return primes[round][label % 16] + 10000 * (label / 16);
  }

  Sizes ask(Labels labels, int32_t round) {
    Sizes result;
    int32_t next = 0;
    for (int32_t i = 0; i < input_count_; ++i) {
      auto& sizes = result.inputs.emplace_back();
      for (int32_t axis = 0; axis < inputs_[i].nbDims; ++axis, ++next) {
        const nvinfer1::IDimensionExpr& size = *inputs_[i].d[axis];
        const int32_t label = labels == Labels::own ? next
                              : labels == Labels::of_axis ? axis
                                                          : inputs_[i].nbDims - 1 - axis;
        sizes.push_back(size.isConstant() ? size.getConstantValue() : number(label, round));
      }
    }
    call(result);
    return result;
  }

  void call(Sizes& sizes) {
    std::vector<opbridge_tensor> inputs, outputs;
    std::vector<std::vector<int64_t>> room(static_cast<size_t>(op_.output_count),
                                           std::vector<int64_t>(OPBRIDGE_MAX_RANK));
    for (int32_t i = 0; i < op_.input_count || i < input_count_; ++i) {
      if (i < input_count_) {
        auto& own = sizes.inputs[static_cast<size_t>(i)];
        inputs.push_back({nullptr, own.data(), nullptr, static_cast<int32_t>(own.size()), input_types_[i]});
      } else {
        inputs.push_back({nullptr, nullptr, nullptr, 0, OPBRIDGE_ABSENT});
      }
    }
    for (int32_t i = 0; i < op_.output_count; ++i)
      outputs.push_back({nullptr, room[static_cast<size_t>(i)].data(), nullptr, 0, output_types_[i]});
    opbridge_call call{};
    call.op = &op_;
    call.inputs = inputs.data();
    call.outputs = outputs.data();
    call.attributes = attributes_;
    call.input_count = static_cast<int32_t>(inputs.size());
    call.output_count = op_.output_count;
    if (op_.shape(&call) != 0) {
      error_ = call.error;
      return;
    }
    for (const opbridge_tensor& output : outputs)
      sizes.outputs.emplace_back(output.sizes, output.sizes + output.rank);
  }

  void express(const Sizes& first, const Sizes& second, nvinfer1::DimsExprs* outputs,
               nvinfer1::IExprBuilder& builder) const {
    for (size_t o = 0; o < first.outputs.size(); ++o) {
      if (first.outputs[o].size() > nvinfer1::Dims::MAX_DIMS)
        throw Error(op_.domain, "::", op_.name, ": TensorRT takes at most ", nvinfer1::Dims::MAX_DIMS, " dimensions");
      outputs[o].nbDims = static_cast<int32_t>(first.outputs[o].size());
      for (size_t axis = 0; axis < first.outputs[o].size(); ++axis)
        outputs[o].d[axis] = expression(first, second, o, axis, builder);
    }
  }

  const nvinfer1::IDimensionExpr* expression(const Sizes& first, const Sizes& second, size_t o, size_t axis,
                                             nvinfer1::IExprBuilder& builder) const {
    const int64_t one = first.outputs[o][axis];
    const int64_t other = axis < second.outputs[o].size() ? second.outputs[o][axis] : -1;
    if (one == other && one >= 0) return builder.constant(one);
    for (size_t i = 0; i < first.inputs.size() && one >= 0; ++i)
      for (size_t a = 0; a < first.inputs[i].size(); ++a)
        if (first.inputs[i][a] == one && second.inputs[i][a] == other) return inputs_[i].d[a];
    throw Error(op_.domain, "::", op_.name, ": dimension ", static_cast<int64_t>(axis), " of output '",
                op_.outputs[o].name, one < 0 ? "' shows only in the run" : "' is computed from sizes that are not fixed",
                ", which this plugin can't tell TensorRT: export the model with fixed sizes");
  }

  const opbridge_operator& op_;
  const opbridge_value* attributes_;
  const int32_t* output_types_;
  const nvinfer1::DimsExprs* inputs_ = nullptr;
  const int32_t* input_types_ = nullptr;
  int32_t input_count_ = 0;
  std::string error_;
};

}  // namespace opbridge::tensorrt
