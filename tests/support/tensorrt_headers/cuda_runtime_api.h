// As much of CUDA's runtime as plugin.cc uses, on the host's memory: there is no GPU where this is compiled.
#pragma once

#include <cstddef>
#include <cstring>

enum cudaError_t { cudaSuccess };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
struct CUstream_st;
using cudaStream_t = CUstream_st*;

inline const char* cudaGetErrorString(cudaError_t) { return "an error"; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  std::memcpy(target, source, bytes);
  return cudaSuccess;
}
