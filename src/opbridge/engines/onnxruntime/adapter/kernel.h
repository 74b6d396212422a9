// A node's kernel: it builds an opbridge_call from ONNX Runtime's arguments, and implements the host.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "attributes.h"
#include "c_api.h"
#include "opbridge/abi.h"
#include "opbridge/tensor.h"

namespace opbridge::onnxruntime {

// Elements on the stack if they are few, as in nearly all cases.
template <class T, size_t few>
class Few {
 public:
  explicit Few(size_t count) : data_(count <= few ? inline_ : static_cast<T*>(std::calloc(count, sizeof(T)))) {
    if (data_ == nullptr) throw Error("no memory for ", count, " tensors");
  }
  ~Few() {
    if (data_ != inline_) std::free(data_);
  }
  Few(const Few&) = delete;
  Few& operator=(const Few&) = delete;

  T* data() { return data_; }
  T& operator[](size_t index) { return data_[index]; }

 private:
  T inline_[few];
  T* data_;
};

class Kernel {
 public:
  Kernel(const OrtApi* api, const opbridge_operator* op, const opbridge_variant* variant, const OrtKernelInfo* info)
      : api_(api), op_(op), variant_(variant), attributes_(AttributeReader(api, info).read(*op)) {
    size_t count = 0;
    onnxruntime::check(api, KernelInfo_GetOutputCount(api, info, &count));
    for (size_t i = 0; i < count; ++i) {
      size_t size = 0;
      onnxruntime::check(api, KernelInfo_GetOutputName(api, info, i, nullptr, &size));
      wanted_.push_back(size > 1);  // an unused output has an empty name; the size counts the NUL
    }
    onnxruntime::check(api, CreateCpuMemoryInfo(api, 1, 0, &memory_));
  }
  ~Kernel() { ReleaseMemoryInfo(api_, memory_); }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const OrtApi* api() const { return api_; }
  void compute(OrtKernelContext* context) const;

 private:
  class Run;

  const OrtApi* api_;
  const opbridge_operator* op_;
  const opbridge_variant* variant_;
  Attributes attributes_;
  std::vector<bool> wanted_;
  OrtMemoryInfo* memory_ = nullptr;
};

// One run of a kernel. Its memory is freed when it ends.
class Kernel::Run {
 public:
  Run(const Kernel& kernel, OrtKernelContext* context)
      : kernel_(kernel),
        api_(kernel.api_),
        context_(context),
        input_count_(positions(given_inputs(), kernel.op_->inputs, kernel.op_->input_count)),
        output_count_(positions(kernel.wanted_.size(), kernel.op_->outputs, kernel.op_->output_count)),
        inputs_(input_count_),
        outputs_(output_count_),
        sizes_((input_count_ + output_count_) * OPBRIDGE_MAX_RANK),
        pending_(output_count_) {
    call_.op = kernel.op_;
    call_.inputs = inputs_.data();
    call_.outputs = outputs_.data();
    call_.attributes = kernel.attributes_.values.data();
    call_.host = nullptr;
    call_.host_data = this;
    call_.input_count = static_cast<int32_t>(input_count_);
    call_.output_count = static_cast<int32_t>(output_count_);
    call_.error[0] = '\0';
  }
  ~Run() {
    for (void* memory : scratch_) succeeded(api_, AllocatorFree(api_, allocator_, memory));
    if (allocator_ != nullptr) ReleaseAllocator(api_, allocator_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void run() {
    for (size_t i = 0; i < input_count_; ++i) read_input(i);
    for (size_t i = 0; i < output_count_; ++i)
      outputs_[i] = {nullptr, &sizes_[(input_count_ + i) * OPBRIDGE_MAX_RANK], nullptr, 0, output_dtype(i)};
    finish(kernel_.op_->shape(&call_));
    for (size_t i = 0; i < output_count_; ++i) prepare_output(i);
    static constexpr opbridge_host host = {&parallel_for, &scratch, &allocate_output};
    call_.host = &host;
    finish(kernel_.variant_->run(&call_));
    for (size_t i = 0; i < output_count_; ++i)
      if (pending_[i])
        throw Error(kernel_.op_->domain, "::", kernel_.op_->name, ": the kernel did not allocate output '",
                    argument(kernel_.op_->outputs, kernel_.op_->output_count, i).name,
                    "', whose sizes its shape function left data-dependent");
  }

 private:
  static const opbridge_argument& argument(const opbridge_argument* declared, int32_t count, size_t position) {
    return declared[opbridge_argument_index(static_cast<int32_t>(position), count)];
  }
  // The number of tensors of a call: one per declared argument, any number for a variadic one.
  static size_t positions(size_t given, const opbridge_argument* declared, int32_t count) {
    const size_t fixed = static_cast<size_t>(count);
    if (count == 0 || !(declared[count - 1].flags & OPBRIDGE_VARIADIC)) return fixed;
    return given >= fixed ? given : fixed - 1;
  }
  size_t given_inputs() {
    onnxruntime::check(api_, KernelContext_GetInputCount(api_, context_, &given_));
    return given_;
  }
  int32_t output_dtype(size_t index) const {
    const opbridge_argument& declared = argument(kernel_.op_->outputs, kernel_.op_->output_count, index);
    if ((declared.flags & OPBRIDGE_OPTIONAL) && !(index < kernel_.wanted_.size() && kernel_.wanted_[index]))
      return OPBRIDGE_ABSENT;
    return opbridge_argument_dtype(&declared, kernel_.variant_);
  }
  static bool has_data_dependent_size(SizeSpan sizes) {
    for (int64_t size : sizes)
      if (size < 0) return true;
    return false;
  }

  void read_input(size_t index) {
    int64_t* sizes = &sizes_[index * OPBRIDGE_MAX_RANK];
    inputs_[index] = {nullptr, sizes, nullptr, 0, OPBRIDGE_ABSENT};
    const OrtValue* value = nullptr;
    if (index < given_) onnxruntime::check(api_, KernelContext_GetInput(api_, context_, index, &value));
    if (value == nullptr) return;
    OrtTensorTypeAndShapeInfo* info = nullptr;
    onnxruntime::check(api_, GetTensorTypeAndShape(api_, value, &info));
    size_t rank = 0;
    OrtStatus* status = GetDimensionsCount(api_, info, &rank);
    if (status == nullptr && rank <= OPBRIDGE_MAX_RANK) status = GetDimensions(api_, info, sizes, rank);
    ReleaseTensorTypeAndShapeInfo(api_, info);
    onnxruntime::check(api_, status);
    const opbridge_argument& declared = argument(kernel_.op_->inputs, kernel_.op_->input_count, index);
    if (rank > OPBRIDGE_MAX_RANK)
      throw Error(kernel_.op_->domain, "::", kernel_.op_->name, ": input '", declared.name, "' has rank ", rank,
                  ", more than ", OPBRIDGE_MAX_RANK);
    onnxruntime::check(api_, GetTensorMutableData(api_, const_cast<OrtValue*>(value), &inputs_[index].data));
    inputs_[index].rank = static_cast<int32_t>(rank);
    inputs_[index].dtype = opbridge_argument_dtype(&declared, kernel_.variant_);
  }

  void prepare_output(size_t index) {
    opbridge_tensor& output = outputs_[index];
    pending_[index] = false;
    if (output.dtype == OPBRIDGE_ABSENT) return;
    const SizeSpan sizes(output.sizes, output.rank);
    if (!has_data_dependent_size(sizes)) {
      allocate(index, sizes);
      return;
    }
    pending_[index] = true;
    output.rank = 0;
  }

  // Memory from ONNX Runtime, or scratch memory for an unused output.
  void allocate(size_t index, SizeSpan sizes) {
    opbridge_tensor& output = outputs_[index];
    OrtValue* value = nullptr;
    if (index < kernel_.wanted_.size())
      onnxruntime::check(api_, KernelContext_GetOutput(api_, context_, index, sizes.data(),
                                                       static_cast<size_t>(sizes.size()), &value));
    if (value != nullptr) onnxruntime::check(api_, GetTensorMutableData(api_, value, &output.data));
    else output.data = allocate_scratch(element_count(sizes) * opbridge_dtype_size(output.dtype));
    for (int64_t axis = 0; axis < sizes.size(); ++axis) output.sizes[axis] = sizes[axis];
    output.rank = static_cast<int32_t>(sizes.size());
    pending_[index] = false;
  }

  void* allocate_scratch(int64_t bytes) {
    if (allocator_ == nullptr)
      onnxruntime::check(api_, KernelContext_GetAllocator(api_, context_, kernel_.memory_, &allocator_));
    constexpr size_t alignment = 64;
    void* memory = nullptr;
    onnxruntime::check(api_, AllocatorAlloc(api_, allocator_, static_cast<size_t>(bytes) + alignment, &memory));
    if (memory == nullptr) throw Error("out of memory");
    scratch_.push_back(memory);
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory) + alignment - 1) & ~(alignment - 1));
  }

  void finish(int32_t failed) const {
    if (failed != 0) throw Error(static_cast<const char*>(call_.error));
  }

  static Run& of(opbridge_call* call) { return *static_cast<Run*>(call->host_data); }

  struct Pieces {
    opbridge_body body;
    void* user;
    int64_t total;
    int64_t size;
  };
  static void run_piece(void* data, size_t index) {
    const Pieces& pieces = *static_cast<const Pieces*>(data);
    const int64_t begin = static_cast<int64_t>(index) * pieces.size;
    const int64_t end = pieces.total - begin < pieces.size ? pieces.total : begin + pieces.size;
    pieces.body(pieces.user, begin, end);
  }
  static void parallel_for(opbridge_call* call, int64_t total, int64_t grain, opbridge_body body, void* user) {
    // Several pieces per thread, since threads differ in speed, but not too many: each costs a tenth of a microsecond.
    static const int64_t most = 8 * static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
    Pieces pieces{body, user, total, std::max(grain, (total - 1) / most + 1)};
    const int64_t count = (total - 1) / pieces.size + 1;
    const Run& run = of(call);
    const bool started = succeeded(run.api_, KernelContext_ParallelFor(run.api_, run.context_, &run_piece,
                                                                       static_cast<size_t>(count), 0, &pieces));
    // If ONNX Runtime refuses it, it does so before the first piece.
    if (!started) body(user, 0, total);
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
      if (index < 0 || position >= run.output_count_ || !run.pending_[position])
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

  const Kernel& kernel_;
  const OrtApi* api_;
  OrtKernelContext* context_;
  size_t given_ = 0;
  size_t input_count_;
  size_t output_count_;
  Few<opbridge_tensor, 12> inputs_;
  Few<opbridge_tensor, 4> outputs_;
  Few<int64_t, 12 * OPBRIDGE_MAX_RANK> sizes_;
  Few<bool, 4> pending_;  // outputs that the kernel must still allocate
  std::vector<void*> scratch_;
  OrtAllocator* allocator_ = nullptr;
  opbridge_call call_;
};

inline void Kernel::compute(OrtKernelContext* context) const { Run(*this, context).run(); }

}  // namespace opbridge::onnxruntime
