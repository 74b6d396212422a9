// A session of ONNX Runtime, without its headers, which are not in its Python package. A program that has them can use
// Ort::Session of onnxruntime_cxx_api.h instead.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "adapter/c_api.h"
#include "npy.h"

struct OrtEnv;
struct OrtSession;
struct OrtRunOptions;
extern "C" const OrtApiBase* OrtGetApiBase();

namespace opbridge::onnxruntime {

inline constexpr ApiFunction<3, OrtStatus*(int, const char*, OrtEnv**)> CreateEnv;
inline constexpr ApiFunction<7, OrtStatus*(const OrtEnv*, const char*, const OrtSessionOptions*, OrtSession**)>
    CreateSession;
inline constexpr ApiFunction<9, OrtStatus*(OrtSession*, const OrtRunOptions*, const char* const*, const OrtValue* const*,
                                           size_t, const char* const*, size_t, OrtValue**)>
    Run;
inline constexpr ApiFunction<10, OrtStatus*(OrtSessionOptions**)> CreateSessionOptions;
inline constexpr ApiFunction<29, OrtStatus*(OrtSessionOptions*, const char*, void**)> RegisterCustomOpsLibrary;
inline constexpr ApiFunction<49, OrtStatus*(const OrtMemoryInfo*, void*, size_t, const int64_t*, size_t, int, OrtValue**)>
    CreateTensorWithDataAsOrtValue;
inline constexpr ApiFunction<92, void(OrtEnv*)> ReleaseEnv;
inline constexpr ApiFunction<95, void(OrtSession*)> ReleaseSession;
inline constexpr ApiFunction<100, void(OrtSessionOptions*)> ReleaseSessionOptions;

inline int element_type(const std::string& dtype) {
  static const std::map<std::string, int> types = {{"<f4", 1}, {"|u1", 2},  {"|i1", 3},  {"<u2", 4},  {"<i2", 5}, {"<i4", 6},
                                                   {"<i8", 7}, {"|b1", 9}, {"<f2", 10}, {"<f8", 11}, {"<u4", 12}, {"<u8", 13}};
  return types.at(dtype);
}

class Session {
 public:
  Session(const std::string& model, const std::string& library) {
    constexpr int warnings = 2, allocator = 0, memory = 0;
    check(api_, CreateEnv(api_, warnings, "program", &environment_));
    check(api_, CreateCpuMemoryInfo(api_, allocator, memory, &memory_));
    check(api_, CreateSessionOptions(api_, &options_));
    void* handle = nullptr;
    if (!library.empty()) check(api_, RegisterCustomOpsLibrary(api_, options_, library.c_str(), &handle));
    check(api_, CreateSession(api_, environment_, model.c_str(), options_, &session_));
  }
  Session(const Session&) = delete;
  ~Session() {
    ReleaseSession(api_, session_);
    ReleaseSessionOptions(api_, options_);
    ReleaseMemoryInfo(api_, memory_);
    ReleaseEnv(api_, environment_);
  }

  // The outputs' arrays. `dtypes` are those of the outputs.
  std::vector<npy::Array> run(const std::vector<const char*>& inputs, std::vector<npy::Array> arrays,
                              const std::vector<const char*>& outputs, const std::vector<std::string>& dtypes) {
    std::vector<OrtValue*> values(arrays.size()), results(outputs.size());
    for (size_t i = 0; i < arrays.size(); ++i) {
      npy::Array& array = arrays[i];
      check(api_, CreateTensorWithDataAsOrtValue(api_, memory_, array.bytes.data(), array.bytes.size(), array.shape.data(),
                                                 array.shape.size(), element_type(array.dtype), &values[i]));
    }
    check(api_, Run(api_, session_, nullptr, inputs.data(), values.data(), values.size(), outputs.data(), outputs.size(),
                    results.data()));
    std::vector<npy::Array> found;
    for (size_t i = 0; i < results.size(); ++i) found.push_back(to_array(results[i], dtypes[i]));
    for (OrtValue* value : values) ReleaseValue(api_, value);
    for (OrtValue* value : results) ReleaseValue(api_, value);
    return found;
  }

 private:
  npy::Array to_array(OrtValue* value, const std::string& dtype) {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    void* data = nullptr;
    size_t rank = 0;
    check(api_, GetTensorTypeAndShape(api_, value, &info));
    check(api_, GetDimensionsCount(api_, info, &rank));
    std::vector<int64_t> shape(rank);
    check(api_, GetDimensions(api_, info, shape.data(), rank));
    ReleaseTensorTypeAndShapeInfo(api_, info);
    check(api_, GetTensorMutableData(api_, value, &data));
    size_t bytes = std::stoul(dtype.substr(2));
    for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
    const char* start = static_cast<const char*>(data);
    return {dtype, shape, {start, start + bytes}};
  }

  const OrtApi* api_ = OrtGetApiBase()->GetApi(oldest_api);
  OrtEnv* environment_ = nullptr;
  OrtMemoryInfo* memory_ = nullptr;
  OrtSessionOptions* options_ = nullptr;
  OrtSession* session_ = nullptr;
};

}  // namespace opbridge::onnxruntime
