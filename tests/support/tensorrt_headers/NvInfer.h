// As much of TensorRT's plugin interface (version 3) as plugin.cc uses, declared anew from its documentation, so that the
// plugin can be compiled and run where there is neither TensorRT nor a GPU. Members are in no particular order: nothing
// that is compiled with this can be loaded by TensorRT.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace nvinfer1 {

enum class DataType : int32_t { kFLOAT, kHALF, kINT8, kINT32, kBOOL, kUINT8, kFP8, kBF16, kINT64 };
enum class TensorFormat : int32_t { kLINEAR, kCHW2 };
enum class PluginFieldType : int32_t { kFLOAT32, kFLOAT64, kINT32, kINT64, kCHAR, kUNKNOWN };
enum class PluginCapabilityType : int32_t { kCORE, kBUILD, kRUNTIME };
enum class TensorRTPhase : int32_t { kBUILD, kRUNTIME };

struct Dims {
  static constexpr int32_t MAX_DIMS = 8;
  int32_t nbDims;
  int64_t d[MAX_DIMS];
};

struct PluginTensorDesc {
  Dims dims;
  DataType type;
  TensorFormat format;
  float scale;
};

struct DynamicPluginTensorDesc {
  PluginTensorDesc desc;
};

class IDimensionExpr {
 public:
  virtual ~IDimensionExpr() = default;
  virtual bool isConstant() const noexcept = 0;
  virtual int64_t getConstantValue() const noexcept = 0;
};

struct DimsExprs {
  int32_t nbDims;
  IDimensionExpr const* d[Dims::MAX_DIMS];
};

class IExprBuilder {
 public:
  virtual ~IExprBuilder() = default;
  virtual IDimensionExpr const* constant(int64_t value) noexcept = 0;
};

struct PluginField {
  PluginField(char const* name_ = nullptr, void const* data_ = nullptr,
              PluginFieldType type_ = PluginFieldType::kUNKNOWN, int32_t length_ = 0) noexcept
      : name(name_), data(data_), type(type_), length(length_) {}
  char const* name;
  void const* data;
  PluginFieldType type;
  int32_t length;
};

struct PluginFieldCollection {
  int32_t nbFields{};
  PluginField const* fields{};
};

class ILogger {
 public:
  enum class Severity : int32_t { kINTERNAL_ERROR, kERROR, kWARNING, kINFO, kVERBOSE };
  virtual ~ILogger() = default;
  virtual void log(Severity severity, char const* message) noexcept = 0;
};

class ILoggerFinder {
 public:
  virtual ~ILoggerFinder() = default;
  virtual ILogger* findLogger() noexcept = 0;
};

class IPluginCapability {
 public:
  virtual ~IPluginCapability() = default;
};
class IPluginResourceContext {};

class IPluginV3 {
 public:
  virtual ~IPluginV3() = default;
  virtual IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept = 0;
  virtual IPluginV3* clone() noexcept = 0;
};

class IPluginV3OneCore : public IPluginCapability {
 public:
  virtual char const* getPluginName() const noexcept = 0;
  virtual char const* getPluginVersion() const noexcept = 0;
  virtual char const* getPluginNamespace() const noexcept = 0;
};

class IPluginV3OneBuild : public IPluginCapability {
 public:
  virtual int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t inputs, DynamicPluginTensorDesc const* out,
                                  int32_t outputs) noexcept = 0;
  virtual int32_t getOutputDataTypes(DataType* output_types, int32_t outputs, DataType const* input_types,
                                     int32_t inputs) const noexcept = 0;
  virtual int32_t getOutputShapes(DimsExprs const* inputs, int32_t input_count, DimsExprs const* shape_inputs,
                                  int32_t shape_input_count, DimsExprs* outputs, int32_t output_count,
                                  IExprBuilder& builder) noexcept = 0;
  virtual bool supportsFormatCombination(int32_t position, DynamicPluginTensorDesc const* tensors, int32_t inputs,
                                         int32_t outputs) noexcept = 0;
  virtual int32_t getNbOutputs() const noexcept = 0;
};

class IPluginV3OneRuntime : public IPluginCapability {
 public:
  virtual int32_t onShapeChange(PluginTensorDesc const* in, int32_t inputs, PluginTensorDesc const* out,
                                int32_t outputs) noexcept = 0;
  virtual int32_t enqueue(PluginTensorDesc const* input_descriptions, PluginTensorDesc const* output_descriptions,
                          void const* const* inputs, void* const* outputs, void* workspace,
                          cudaStream_t stream) noexcept = 0;
  virtual IPluginV3* attachToContext(IPluginResourceContext* context) noexcept = 0;
  virtual PluginFieldCollection const* getFieldsToSerialize() noexcept = 0;
};

class IPluginCreatorInterface {
 public:
  virtual ~IPluginCreatorInterface() = default;
};

class IPluginCreatorV3One : public IPluginCreatorInterface {
 public:
  virtual IPluginV3* createPlugin(char const* name, PluginFieldCollection const* fields,
                                  TensorRTPhase phase) noexcept = 0;
  virtual PluginFieldCollection const* getFieldNames() noexcept = 0;
  virtual char const* getPluginName() const noexcept = 0;
  virtual char const* getPluginVersion() const noexcept = 0;
  virtual char const* getPluginNamespace() const noexcept = 0;
};

}  // namespace nvinfer1
