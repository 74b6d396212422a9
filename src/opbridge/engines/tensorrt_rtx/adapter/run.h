// A run of a kernel in a plugin: on the GPU if the operator has a GPU kernel, otherwise through the host's memory.
#pragma once

#include <NvInfer.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "cuda_kernel.h"
#include "opbridge/abi.h"
#include "opbridge/error.h"

namespace opbridge::tensorrt {

inline void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw Error(what, ": ", cudaGetErrorString(code));
}

// ONNX's number for a type of TensorRT; OPBRIDGE_ABSENT for an unsupported type.
inline int32_t dtype_of(nvinfer1::DataType type) {
  using Type = nvinfer1::DataType;
  switch (type) {
    case Type::kFLOAT: return OPBRIDGE_FLOAT32;
    case Type::kHALF: return OPBRIDGE_FLOAT16;
    case Type::kBF16: return OPBRIDGE_BFLOAT16;
    case Type::kINT8: return OPBRIDGE_INT8;
    case Type::kINT32: return OPBRIDGE_INT32;
    case Type::kINT64: return OPBRIDGE_INT64;
    case Type::kUINT8: return OPBRIDGE_UINT8;
    case Type::kBOOL: return OPBRIDGE_BOOL;
    default: return OPBRIDGE_ABSENT;
  }
}

// TensorRT's type for a number of ONNX; throws if there is none.
inline nvinfer1::DataType type_of(int32_t dtype) {
  using Type = nvinfer1::DataType;
  for (const Type type : {Type::kFLOAT, Type::kHALF, Type::kBF16, Type::kINT8, Type::kINT32, Type::kINT64, Type::kUINT8,
                          Type::kBOOL})
    if (dtype_of(type) == dtype) return type;
  throw Error("TensorRT has no ", opbridge_dtype_name(dtype));
}

class Run {
 public:
  Run(const opbridge_operator& op, const opbridge_value* attributes, const nvinfer1::PluginTensorDesc* inputs,
      int32_t input_count, const nvinfer1::PluginTensorDesc* outputs)
      : op_(op) {
    call_.op = &op;
    call_.attributes = attributes;
    for (int32_t i = 0; i < op.input_count || i < input_count; ++i)
      inputs_.push_back(i < input_count ? tensor(inputs[i]) : opbridge_tensor{});
    for (int32_t i = 0; i < op.output_count; ++i) outputs_.push_back(tensor(outputs[i]));
    call_.inputs = inputs_.data();
    call_.outputs = outputs_.data();
    call_.input_count = static_cast<int32_t>(inputs_.size());
    call_.output_count = op.output_count;
    given_ = input_count;
  }

  void on_gpu(CudaFunction function, void const* const* inputs, void* const* outputs, cudaStream_t stream) {
    for (int32_t i = 0; i < given_; ++i) inputs_[static_cast<size_t>(i)].data = const_cast<void*>(inputs[i]);
    for (int32_t i = 0; i < op_.output_count; ++i) outputs_[static_cast<size_t>(i)].data = outputs[i];
    if (function(&call_, stream) != 0) throw Error(call_.error);
  }

  void through_host(void const* const* inputs, void* const* outputs, cudaStream_t stream) {
    for (int32_t i = 0; i < given_; ++i) {
      opbridge_tensor& input = inputs_[static_cast<size_t>(i)];
      input.data = host_memory(bytes_of(input));
      check(cudaMemcpyAsync(input.data, inputs[i], bytes_of(input), cudaMemcpyDeviceToHost, stream), "copying an input");
    }
    check(cudaStreamSynchronize(stream), "waiting for the inputs");
    for (opbridge_tensor& output : outputs_) output.data = host_memory(bytes_of(output));
    const opbridge_variant* variant = opbridge_find_variant(&op_, inputs_.data(), call_.input_count);
    if (variant == nullptr) throw Error(op_.domain, "::", op_.name, ": no kernel for these element types");
    static constexpr opbridge_host host = {&parallel_for, &scratch, &allocate_output};
    call_.host = &host;
    call_.host_data = this;
    if (variant->run(&call_) != 0) throw Error(call_.error);
    for (int32_t i = 0; i < op_.output_count; ++i) {
      const opbridge_tensor& output = outputs_[static_cast<size_t>(i)];
      check(cudaMemcpyAsync(outputs[i], output.data, bytes_of(output), cudaMemcpyHostToDevice, stream),
            "copying an output");
    }
    // The host's memory is freed when this function ends.
    check(cudaStreamSynchronize(stream), "waiting for the outputs");
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  opbridge_tensor tensor(const nvinfer1::PluginTensorDesc& description) {
    auto& sizes = sizes_.emplace_back(new int64_t[nvinfer1::Dims::MAX_DIMS]);
    for (int32_t axis = 0; axis < description.dims.nbDims; ++axis) sizes[axis] = description.dims.d[axis];
    return {nullptr, sizes.get(), nullptr, description.dims.nbDims, dtype_of(description.type)};
  }
  static size_t bytes_of(const opbridge_tensor& tensor) {
    int64_t count = opbridge_dtype_size(tensor.dtype);
    for (int32_t axis = 0; axis < tensor.rank; ++axis) count *= tensor.sizes[axis];
    return static_cast<size_t>(count);
  }
  // The memory is aligned to 64 bytes; aligned_alloc requires a size that is a multiple of the alignment.
  void* host_memory(size_t bytes) {
    void* memory = std::aligned_alloc(64, (bytes / 64 + 1) * 64);
    if (memory == nullptr) throw Error(op_.domain, "::", op_.name, ": no memory for ", static_cast<int64_t>(bytes), " bytes");
    memory_.emplace_back(memory);
    return memory;
  }

  static void parallel_for(opbridge_call*, int64_t total, int64_t, opbridge_body body, void* user) {
    if (total > 0) body(user, 0, total);
  }
  static void* scratch(opbridge_call* call, int64_t bytes) {
    try {
      return static_cast<Run*>(call->host_data)->host_memory(static_cast<size_t>(bytes));
    } catch (const std::exception&) {
      return nullptr;
    }
  }
  static int32_t allocate_output(opbridge_call* call, int32_t, int32_t, const int64_t*) {
    std::snprintf(call->error, sizeof call->error, "TensorRT is told all sizes before the run");
    return 1;
  }

  const opbridge_operator& op_;
  opbridge_call call_{};
  int32_t given_ = 0;
  std::vector<opbridge_tensor> inputs_, outputs_;
  std::vector<std::unique_ptr<int64_t[]>> sizes_;
  std::vector<std::unique_ptr<void, Free>> memory_;
};

}  // namespace opbridge::tensorrt
