// Calls of a kernel's shape function and of the kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <openvino/runtime/tensor.hpp>

#if __has_include(<tbb/parallel_for.h>)
#include <tbb/parallel_for.h>
#define OPBRIDGE_OPENVINO_TBB 1
#endif

#include "convert.h"
#include "element_types.h"
#include "opbridge/attributes.h"
#include "opbridge/error.h"
#include "opbridge/tensor.h"

namespace opbridge::openvino {

// The number of tensors of a call: one per declared argument, any number for a variadic one.
inline size_t positions(size_t given, const opbridge_argument* declared, int32_t count) {
  const size_t fixed = static_cast<size_t>(count);
  if (count == 0 || !(declared[count - 1].flags & OPBRIDGE_VARIADIC)) return fixed;
  return given >= fixed ? given : fixed - 1;
}

// Calls a shape function before the contents exist.
class ShapeInference {
 public:
  ShapeInference(const opbridge_operator& op, const opbridge_variant& variant, const Attributes& attributes)
      : op_(op), variant_(variant), attributes_(attributes) {}

  void add(std::vector<int64_t> sizes, int32_t dtype, const void* data = nullptr) {
    sizes_.push_back(std::make_unique<std::vector<int64_t>>(std::move(sizes)));
    inputs_.push_back({const_cast<void*>(data), sizes_.back()->data(), nullptr,
                       static_cast<int32_t>(sizes_.back()->size()), dtype});
  }
  void add_absent() { inputs_.push_back({nullptr, nullptr, nullptr, 0, OPBRIDGE_ABSENT}); }

  // False if the sizes can't be determined; error() is then the reason.
  bool run() {
    inputs_.resize(positions(inputs_.size(), op_.inputs, op_.input_count),
                   {nullptr, nullptr, nullptr, 0, OPBRIDGE_ABSENT});
    const size_t count = static_cast<size_t>(op_.output_count);
    memory_.resize(count * OPBRIDGE_MAX_RANK);
    for (size_t i = 0; i < count; ++i)
      outputs_.push_back({nullptr, &memory_[i * OPBRIDGE_MAX_RANK], nullptr, 0,
                          opbridge_argument_dtype(&op_.outputs[i], &variant_)});
    call_.op = &op_;
    call_.inputs = inputs_.data();
    call_.outputs = outputs_.data();
    call_.attributes = attributes_.values.data();
    call_.host = nullptr;
    call_.host_data = nullptr;
    call_.input_count = static_cast<int32_t>(inputs_.size());
    call_.output_count = op_.output_count;
    return op_.shape(&call_) == 0;
  }
  const char* error() const { return call_.error; }
  SizeSpan sizes(size_t output) const { return SizeSpan(outputs_[output].sizes, outputs_[output].rank); }

 private:
  const opbridge_operator& op_;
  const opbridge_variant& variant_;
  const Attributes& attributes_;
  std::vector<std::unique_ptr<std::vector<int64_t>>> sizes_;
  std::vector<opbridge_tensor> inputs_;
  std::vector<opbridge_tensor> outputs_;
  std::vector<int64_t> memory_;
  opbridge_call call_;
};

// One run of a kernel on OpenVINO's tensors.
class Run {
 public:
  Run(const opbridge_operator& op, const opbridge_variant& variant, const Attributes& attributes,
      const std::vector<bool>& given, ov::TensorVector& outputs, const ov::TensorVector& inputs)
      : op_(op), variant_(variant), results_(outputs), inputs_(positions(given.size(), op.inputs, op.input_count)),
        outputs_(static_cast<size_t>(op.output_count)), pending_(outputs_.size()),
        sizes_((inputs_.size() + outputs_.size()) * OPBRIDGE_MAX_RANK) {
    size_t next = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs_[i] = {nullptr, nullptr, nullptr, 0, OPBRIDGE_ABSENT};
      if (i < given.size() && given[i]) read_input(i, inputs[next++]);
    }
    call_.op = &op;
    call_.inputs = inputs_.data();
    call_.outputs = outputs_.data();
    call_.attributes = attributes.values.data();
    call_.host = nullptr;
    call_.host_data = this;
    call_.input_count = static_cast<int32_t>(inputs_.size());
    call_.output_count = op.output_count;
    call_.error[0] = '\0';
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void run() {
    for (size_t i = 0; i < outputs_.size(); ++i)
      outputs_[i] = {nullptr, sizes_of(inputs_.size() + i), nullptr, 0,
                     opbridge_argument_dtype(&op_.outputs[i], &variant_)};
    finish(op_.shape(&call_));
    for (size_t i = 0; i < outputs_.size(); ++i) prepare_output(i);
    static constexpr opbridge_host host = {&parallel_for, &scratch, &allocate_output};
    call_.host = &host;
    finish(variant_.run(&call_));
    for (size_t i = 0; i < outputs_.size(); ++i) give_back(i);
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (pending_[i])
        throw Error(op_.domain, "::", op_.name, ": the kernel did not allocate output '", op_.outputs[i].name,
                    "', whose sizes its shape function left data-dependent");
  }

 private:
  int64_t* sizes_of(size_t position) { return &sizes_[position * OPBRIDGE_MAX_RANK]; }

  void read_input(size_t index, const ov::Tensor& tensor) {
    const ov::Shape& shape = tensor.get_shape();
    const opbridge_argument& declared = op_.inputs[opbridge_argument_index(static_cast<int32_t>(index), op_.input_count)];
    if (shape.size() > OPBRIDGE_MAX_RANK)
      throw Error(op_.domain, "::", op_.name, ": input '", declared.name, "' has rank ", shape.size(), ", more than ",
                  OPBRIDGE_MAX_RANK);
    std::copy(shape.begin(), shape.end(), sizes_of(index));
    // An empty tensor may have no memory at all.
    void* data = tensor.get_size() == 0 ? nullptr : const_cast<void*>(static_cast<const void*>(tensor.data()));
    const int32_t dtype = opbridge_argument_dtype(&declared, &variant_);
    const int32_t actual = dtype_of_element(tensor.get_element_type());
    if (data != nullptr && !same_bytes(dtype, actual)) {
      const int64_t count = static_cast<int64_t>(tensor.get_size());
      void* converted = allocate_scratch(count * opbridge_dtype_size(dtype));
      convert(data, actual, converted, dtype, count);
      data = converted;
    }
    inputs_[index] = {data, sizes_of(index), nullptr, static_cast<int32_t>(shape.size()), dtype};
  }

  // Whether the kernel writes an output of another type than OpenVINO expects.
  bool differs(size_t index) const {
    return !same_bytes(outputs_[index].dtype, dtype_of_element(results_[index].get_element_type()));
  }

  void give_back(size_t index) {
    const opbridge_tensor& output = outputs_[index];
    ov::Tensor& result = results_[index];
    if (pending_[index] || output.data == nullptr || !differs(index)) return;
    convert(output.data, output.dtype, result.data(), dtype_of_element(result.get_element_type()),
            static_cast<int64_t>(result.get_size()));
  }

  void prepare_output(size_t index) {
    opbridge_tensor& output = outputs_[index];
    const SizeSpan sizes(output.sizes, output.rank);
    pending_[index] = std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; });
    if (pending_[index]) output.rank = 0;
    else allocate(index, sizes);
  }

  void allocate(size_t index, SizeSpan sizes) {
    opbridge_tensor& output = outputs_[index];
    ov::Tensor& result = results_[index];
    const ov::Shape shape(sizes.begin(), sizes.end());
    if (result.get_shape() != shape) result.set_shape(shape);
    std::copy(sizes.begin(), sizes.end(), output.sizes);
    output.rank = static_cast<int32_t>(sizes.size());
    if (result.get_size() == 0) output.data = nullptr;
    else if (differs(index))
      output.data = allocate_scratch(static_cast<int64_t>(result.get_size()) * opbridge_dtype_size(output.dtype));
    else output.data = result.data();
    pending_[index] = false;
  }

  void finish(int32_t failed) const {
    if (failed != 0) throw Error(static_cast<const char*>(call_.error));
  }

  static Run& of(opbridge_call* call) { return *static_cast<Run*>(call->host_data); }

  // This uses the threads of the arena in which OpenVINO runs the model, so that its number of threads applies.
  static void parallel_for(opbridge_call*, int64_t total, int64_t grain, opbridge_body body, void* user) {
#ifdef OPBRIDGE_OPENVINO_TBB
    // Several pieces per thread, since threads differ in speed, but not too many, since each has an overhead.
    static const int64_t most = 8 * static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
    const int64_t size = std::max(grain, (total - 1) / most + 1);
    const int64_t count = (total - 1) / size + 1;
    tbb::parallel_for(int64_t{0}, count, [&](int64_t index) {
      body(user, index * size, std::min(total, (index + 1) * size));
    });
#else
    static_cast<void>(grain);
    body(user, 0, total);
#endif
  }
  void* allocate_scratch(int64_t bytes) {
    constexpr size_t alignment = 64;
    // std::make_unique would initialize the elements.
    scratch_.emplace_back(new char[static_cast<size_t>(bytes) + alignment]);
    const uintptr_t address = reinterpret_cast<uintptr_t>(scratch_.back().get());
    return reinterpret_cast<void*>((address + alignment - 1) & ~(alignment - 1));
  }
  static void* scratch(opbridge_call* call, int64_t bytes) {
    try {
      return of(call).allocate_scratch(bytes);
    } catch (...) {
      return nullptr;
    }
  }
  static int32_t allocate_output(opbridge_call* call, int32_t index, int32_t rank, const int64_t* sizes) {
    try {
      Run& run = of(call);
      const size_t position = static_cast<size_t>(index);
      if (index < 0 || position >= run.outputs_.size() || !run.pending_[position])
        throw Error("output ", index, " is allocated already: allocate_output is for data-dependent sizes, once");
      if (rank > OPBRIDGE_MAX_RANK) throw Error("output ", index, " has more than ", OPBRIDGE_MAX_RANK, " dimensions");
      run.allocate(position, SizeSpan(sizes, rank));
      return 0;
    } catch (const std::exception& error) {
      std::snprintf(call->error, sizeof call->error, "%s", error.what());
    } catch (...) {
      std::snprintf(call->error, sizeof call->error, "the output can't be allocated");
    }
    return 1;
  }

  const opbridge_operator& op_;
  const opbridge_variant& variant_;
  ov::TensorVector& results_;
  std::vector<opbridge_tensor> inputs_;
  std::vector<opbridge_tensor> outputs_;
  std::vector<bool> pending_;  // outputs that the kernel must still allocate
  std::vector<int64_t> sizes_;
  std::vector<std::unique_ptr<char[]>> scratch_;
  opbridge_call call_;
};

}  // namespace opbridge::openvino
