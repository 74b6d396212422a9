// The required part of ONNX Runtime's C API, without its headers, so that one library works with every version from 1.17.
// OrtApi is a table of functions to which new versions only append; each is called by its index, and a test checks every
// index against the installed version.
#pragma once

#include <cstddef>
#include <cstdint>

#include "opbridge/error.h"

struct OrtApi {
  void (*functions[1])();  // the number depends on the version
};
struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};
struct OrtStatus;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtShapeInferContext;
struct OrtTensorTypeAndShapeInfo;
struct OrtValue;
struct OrtMemoryInfo;
struct OrtAllocator;
struct OrtOpAttr;

struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, size_t);
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void*, OrtKernelContext*);
  void (*KernelDestroy)(void*);
  int (*GetInputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetInputMemoryType)(const OrtCustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void**);
  OrtStatus* (*KernelComputeV2)(void*, OrtKernelContext*);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp*, OrtShapeInferContext*);
  int (*GetStartVersion)(const OrtCustomOp*);
  int (*GetEndVersion)(const OrtCustomOp*);
  void (*since_1_18[4])();
};

namespace opbridge::onnxruntime {

template <size_t index, class Signature>
struct ApiFunction;
template <size_t index, class Result, class... Arguments>
struct ApiFunction<index, Result(Arguments...)> {
  Result operator()(const OrtApi* api, Arguments... arguments) const {
    return reinterpret_cast<Result (*)(Arguments...)>(api->functions[index])(arguments...);
  }
};

inline constexpr ApiFunction<0, OrtStatus*(int, const char*)> CreateStatus;
inline constexpr ApiFunction<2, const char*(const OrtStatus*)> GetErrorMessage;
inline constexpr ApiFunction<26, OrtStatus*(const char*, OrtCustomOpDomain**)> CreateCustomOpDomain;
inline constexpr ApiFunction<27, OrtStatus*(OrtCustomOpDomain*, const OrtCustomOp*)> CustomOpDomain_Add;
inline constexpr ApiFunction<28, OrtStatus*(OrtSessionOptions*, OrtCustomOpDomain*)> AddCustomOpDomain;
inline constexpr ApiFunction<51, OrtStatus*(OrtValue*, void**)> GetTensorMutableData;
inline constexpr ApiFunction<57, OrtStatus*(OrtTensorTypeAndShapeInfo**)> CreateTensorTypeAndShapeInfo;
inline constexpr ApiFunction<58, OrtStatus*(OrtTensorTypeAndShapeInfo*, int)> SetTensorElementType;
inline constexpr ApiFunction<59, OrtStatus*(OrtTensorTypeAndShapeInfo*, const int64_t*, size_t)> SetDimensions;
inline constexpr ApiFunction<60, OrtStatus*(const OrtTensorTypeAndShapeInfo*, int*)> GetTensorElementType;
inline constexpr ApiFunction<61, OrtStatus*(const OrtTensorTypeAndShapeInfo*, size_t*)> GetDimensionsCount;
inline constexpr ApiFunction<62, OrtStatus*(const OrtTensorTypeAndShapeInfo*, int64_t*, size_t)> GetDimensions;
inline constexpr ApiFunction<65, OrtStatus*(const OrtValue*, OrtTensorTypeAndShapeInfo**)> GetTensorTypeAndShape;
inline constexpr ApiFunction<69, OrtStatus*(int, int, OrtMemoryInfo**)> CreateCpuMemoryInfo;
inline constexpr ApiFunction<75, OrtStatus*(OrtAllocator*, size_t, void**)> AllocatorAlloc;
inline constexpr ApiFunction<76, OrtStatus*(OrtAllocator*, void*)> AllocatorFree;
inline constexpr ApiFunction<78, OrtStatus*(OrtAllocator**)> GetAllocatorWithDefaultOptions;
inline constexpr ApiFunction<85, OrtStatus*(const OrtKernelInfo*, const char*, float*)> KernelInfoGetAttribute_float;
inline constexpr ApiFunction<86, OrtStatus*(const OrtKernelInfo*, const char*, int64_t*)> KernelInfoGetAttribute_int64;
inline constexpr ApiFunction<87, OrtStatus*(const OrtKernelInfo*, const char*, char*, size_t*)>
    KernelInfoGetAttribute_string;
inline constexpr ApiFunction<88, OrtStatus*(const OrtKernelContext*, size_t*)> KernelContext_GetInputCount;
inline constexpr ApiFunction<89, OrtStatus*(const OrtKernelContext*, size_t*)> KernelContext_GetOutputCount;
inline constexpr ApiFunction<90, OrtStatus*(const OrtKernelContext*, size_t, const OrtValue**)> KernelContext_GetInput;
inline constexpr ApiFunction<91, OrtStatus*(OrtKernelContext*, size_t, const int64_t*, size_t, OrtValue**)>
    KernelContext_GetOutput;
inline constexpr ApiFunction<93, void(OrtStatus*)> ReleaseStatus;
inline constexpr ApiFunction<94, void(OrtMemoryInfo*)> ReleaseMemoryInfo;
inline constexpr ApiFunction<96, void(OrtValue*)> ReleaseValue;
inline constexpr ApiFunction<99, void(OrtTensorTypeAndShapeInfo*)> ReleaseTensorTypeAndShapeInfo;
inline constexpr ApiFunction<127, OrtStatus*(const OrtValue*, size_t, size_t*)> GetStringTensorElementLength;
inline constexpr ApiFunction<128, OrtStatus*(const OrtValue*, size_t, size_t, void*)> GetStringTensorElement;
inline constexpr ApiFunction<132, void(OrtAllocator*)> ReleaseAllocator;
inline constexpr ApiFunction<162, OrtStatus*(const OrtKernelInfo*, const char*, float*, size_t*)>
    KernelInfoGetAttributeArray_float;
inline constexpr ApiFunction<163, OrtStatus*(const OrtKernelInfo*, const char*, int64_t*, size_t*)>
    KernelInfoGetAttributeArray_int64;
inline constexpr ApiFunction<231, OrtStatus*(const OrtKernelInfo*, size_t*)> KernelInfo_GetOutputCount;
inline constexpr ApiFunction<233, OrtStatus*(const OrtKernelInfo*, size_t, char*, size_t*)> KernelInfo_GetOutputName;
inline constexpr ApiFunction<236, OrtStatus*(const OrtKernelInfo*, const char*, OrtAllocator*, OrtValue**)>
    KernelInfoGetAttribute_tensor;
inline constexpr ApiFunction<253, OrtStatus*(const OrtKernelContext*, const OrtMemoryInfo*, OrtAllocator**)>
    KernelContext_GetAllocator;
inline constexpr ApiFunction<267, OrtStatus*(const OrtShapeInferContext*, size_t*)> ShapeInferContext_GetInputCount;
inline constexpr ApiFunction<268, OrtStatus*(const OrtShapeInferContext*, size_t, OrtTensorTypeAndShapeInfo**)>
    ShapeInferContext_GetInputTypeShape;
inline constexpr ApiFunction<269, OrtStatus*(const OrtShapeInferContext*, const char*, const OrtOpAttr**)>
    ShapeInferContext_GetAttribute;
inline constexpr ApiFunction<270, OrtStatus*(const OrtShapeInferContext*, size_t, const OrtTensorTypeAndShapeInfo*)>
    ShapeInferContext_SetOutputTypeShape;
inline constexpr ApiFunction<271, OrtStatus*(OrtTensorTypeAndShapeInfo*, const char**, size_t)> SetSymbolicDimensions;
inline constexpr ApiFunction<272, OrtStatus*(const OrtOpAttr*, int, void*, size_t, size_t*)> ReadOpAttr;
inline constexpr ApiFunction<274, OrtStatus*(const OrtKernelContext*, void (*)(void*, size_t), size_t, size_t, void*)>
    KernelContext_ParallelFor;

inline constexpr uint32_t oldest_api = 17;
inline constexpr int ort_fail = 1;

// Throws the message of a status.
inline void check(const OrtApi* api, OrtStatus* status) {
  if (status == nullptr) return;
  const Error error(GetErrorMessage(api, status));
  ReleaseStatus(api, status);
  throw error;
}

// Whether a call succeeded; the message of an error is dropped.
inline bool succeeded(const OrtApi* api, OrtStatus* status) {
  if (status == nullptr) return true;
  ReleaseStatus(api, status);
  return false;
}

// Runs a callback's work, and converts an exception to a status.
template <class Work>
OrtStatus* guarded(const OrtApi* api, const Work& work) noexcept {
  try {
    work();
    return nullptr;
  } catch (const std::exception& error) {
    return CreateStatus(api, ort_fail, error.what());
  } catch (...) {
    return CreateStatus(api, ort_fail, "an exception that is no std::exception");
  }
}

}  // namespace opbridge::onnxruntime
