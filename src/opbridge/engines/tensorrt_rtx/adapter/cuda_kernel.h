// A kernel for the GPU, which replaces the host's kernel in the plugin of its operator:
//
//     #include "adapter/cuda_kernel.h"
//
//     int32_t my_add_cuda(opbridge_call* call, cudaStream_t stream);  // launches on the stream, and does not wait
//     OPBRIDGE_CUDA_KERNEL(my_add_cuda, "mylib::my_add")
//
// The call is that of a host's kernel with two differences: the data of inputs and outputs is in the GPU's memory, and
// there is no host (call->host is NULL), so no parallel_for and no scratch memory. The function returns 0, or 1 with a text
// in call->error. The file is next to the kernel's header and has the same stem: my_add.cu for my_add.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "opbridge/abi.h"

namespace opbridge::tensorrt {

using CudaFunction = int32_t (*)(opbridge_call* call, cudaStream_t stream);

struct CudaKernel {
  CudaKernel(CudaFunction function_, std::string_view target_) : function(function_), target(target_), next(first()) {
    first() = this;
  }
  static CudaKernel*& first() {
    static CudaKernel* kernel = nullptr;
    return kernel;
  }

  CudaFunction function;
  std::string_view target;  // "domain::name"
  CudaKernel* next;
};

}  // namespace opbridge::tensorrt

#define OPBRIDGE_CUDA_KERNEL(function, target) \
  namespace {                                  \
  const ::opbridge::tensorrt::CudaKernel opbridge_cuda_kernel_##function(&function, target); \
  }
