// Provides opbridge kernels as TensorRT plugins, driven only by the table of operators: one creator per operator, with its
// name, its domain as namespace, and version "1". It is compiled together with the kernels into a library that TensorRT loads
// (IPluginRegistry::loadLibrary, or trtexec --dynamicPlugins).
#include <NvInfer.h>

#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "adapter/cuda_kernel.h"
#include "adapter/fields.h"
#include "adapter/run.h"
#include "adapter/sizes.h"
#include "opbridge/registration.h"

namespace opbridge::tensorrt {
namespace {

nvinfer1::ILogger* logger = nullptr;

// Runs a function, and writes an exception to TensorRT's log.
template <class Function>
int32_t guarded(Function function) noexcept {
  try {
    function();
    return 0;
  } catch (const std::exception& error) {
    if (logger != nullptr) logger->log(nvinfer1::ILogger::Severity::kERROR, error.what());
  }
  return 1;
}

CudaFunction cuda_function(const opbridge_operator& op) {
  const std::string target = std::string(op.domain) + "::" + op.name;
  for (const CudaKernel* kernel = CudaKernel::first(); kernel != nullptr; kernel = kernel->next)
    if (kernel->target == target) return kernel->function;
  return nullptr;
}

class Plugin final : public nvinfer1::IPluginV3,
                     public nvinfer1::IPluginV3OneCore,
                     public nvinfer1::IPluginV3OneBuild,
                     public nvinfer1::IPluginV3OneRuntime {
 public:
  Plugin(const opbridge_operator& op, const nvinfer1::PluginFieldCollection* fields) : op_(op), attributes_(op, fields) {
    if (op.output_count > 0 && (op.outputs[op.output_count - 1].flags & OPBRIDGE_VARIADIC))
      throw Error(op.domain, "::", op.name, ": TensorRT takes no plugins with any number of outputs");
  }

  nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override {
    switch (type) {
      case nvinfer1::PluginCapabilityType::kCORE: return static_cast<nvinfer1::IPluginV3OneCore*>(this);
      case nvinfer1::PluginCapabilityType::kBUILD: return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
      case nvinfer1::PluginCapabilityType::kRUNTIME: return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
    }
    return nullptr;
  }
  nvinfer1::IPluginV3* clone() noexcept override {
    Plugin* copy = nullptr;
    guarded([&] { copy = new Plugin(*this); });
    return copy;
  }

  char const* getPluginName() const noexcept override { return op_.name; }
  char const* getPluginVersion() const noexcept override { return "1"; }
  char const* getPluginNamespace() const noexcept override { return op_.domain; }

  int32_t getNbOutputs() const noexcept override { return op_.output_count; }

  int32_t configurePlugin(nvinfer1::DynamicPluginTensorDesc const*, int32_t, nvinfer1::DynamicPluginTensorDesc const*,
                          int32_t) noexcept override {
    return 0;
  }

  bool supportsFormatCombination(int32_t position, nvinfer1::DynamicPluginTensorDesc const* given, int32_t input_count,
                                 int32_t) noexcept override {
    for (int32_t i = 0; i <= position; ++i)
      if (given[i].desc.format != nvinfer1::TensorFormat::kLINEAR) return false;
    for (int32_t v = 0; v < op_.variant_count; ++v)
      if (takes(op_.variants[v], given, position, input_count)) return true;
    return false;
  }

  int32_t getOutputDataTypes(nvinfer1::DataType* outputs, int32_t output_count, nvinfer1::DataType const* inputs,
                             int32_t input_count) const noexcept override {
    return guarded([&] {
      const std::vector<int32_t> types = output_types(dtypes(inputs, input_count));
      for (int32_t i = 0; i < output_count; ++i) outputs[i] = type_of(types[static_cast<size_t>(i)]);
      input_types_ = dtypes(inputs, input_count);
    });
  }

  int32_t getOutputShapes(nvinfer1::DimsExprs const* inputs, int32_t input_count, nvinfer1::DimsExprs const*, int32_t,
                          nvinfer1::DimsExprs* outputs, int32_t, nvinfer1::IExprBuilder& builder) noexcept override {
    return guarded([&] {
      // Types that TensorRT has not set yet are those of the first variant.
      std::vector<int32_t> types = input_types_;
      for (auto i = static_cast<int32_t>(types.size()); i < input_count; ++i)
        types.push_back(opbridge_argument_dtype(&op_.inputs[opbridge_argument_index(i, op_.input_count)], op_.variants));
      const std::vector<int32_t> made = output_types(types);
      OutputSizes(op_, attributes_.values(), made.data()).set(inputs, input_count, types.data(), outputs, builder);
    });
  }

  int32_t onShapeChange(nvinfer1::PluginTensorDesc const*, int32_t input_count, nvinfer1::PluginTensorDesc const*,
                        int32_t) noexcept override {
    input_count_ = input_count;
    return 0;
  }

  int32_t enqueue(nvinfer1::PluginTensorDesc const* input_descriptions,
                  nvinfer1::PluginTensorDesc const* output_descriptions, void const* const* inputs,
                  void* const* outputs, void*, cudaStream_t stream) noexcept override {
    return guarded([&] {
      Run run(op_, attributes_.values(), input_descriptions, input_count_, output_descriptions);
      if (const CudaFunction function = cuda_function(op_)) run.on_gpu(function, inputs, outputs, stream);
      else run.through_host(inputs, outputs, stream);
    });
  }

  nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept override { return clone(); }

  nvinfer1::PluginFieldCollection const* getFieldsToSerialize() noexcept override { return attributes_.fields(); }

 private:
  // Whether a variant matches the types of the tensors up to a position.
  bool takes(const opbridge_variant& variant, nvinfer1::DynamicPluginTensorDesc const* given, int32_t position,
             int32_t input_count) const {
    for (int32_t i = 0; i <= position; ++i) {
      const bool is_input = i < input_count;
      const opbridge_argument& argument =
          is_input ? op_.inputs[opbridge_argument_index(i, op_.input_count)] : op_.outputs[i - input_count];
      if (dtype_of(given[i].desc.type) != opbridge_argument_dtype(&argument, &variant)) return false;
    }
    return true;
  }

  static std::vector<int32_t> dtypes(nvinfer1::DataType const* types, int32_t count) {
    std::vector<int32_t> result;
    for (int32_t i = 0; i < count; ++i) result.push_back(dtype_of(types[i]));
    return result;
  }

  std::vector<int32_t> output_types(const std::vector<int32_t>& input_types) const {
    std::vector<opbridge_tensor> inputs;
    for (const int32_t dtype : input_types) inputs.push_back({nullptr, nullptr, nullptr, 0, dtype});
    const opbridge_variant* variant =
        opbridge_find_variant(&op_, inputs.data(), static_cast<int32_t>(inputs.size()));
    if (variant == nullptr) throw Error(op_.domain, "::", op_.name, ": no kernel for these element types");
    std::vector<int32_t> result;
    for (int32_t i = 0; i < op_.output_count; ++i) result.push_back(opbridge_argument_dtype(&op_.outputs[i], variant));
    return result;
  }

  const opbridge_operator& op_;
  Attributes attributes_;
  mutable std::vector<int32_t> input_types_;
  int32_t input_count_ = 0;
};

class Creator final : public nvinfer1::IPluginCreatorV3One {
 public:
  explicit Creator(const opbridge_operator& op) : op_(op) {
    for (int32_t i = 0; i < op.attribute_count; ++i)
      fields_.emplace_back(op.attributes[i].name, nullptr, field_type(op.attributes[i].kind), 1);
    collection_ = {static_cast<int32_t>(fields_.size()), fields_.data()};
  }

  nvinfer1::IPluginV3* createPlugin(char const*, nvinfer1::PluginFieldCollection const* fields,
                                    nvinfer1::TensorRTPhase) noexcept override {
    Plugin* plugin = nullptr;
    guarded([&] { plugin = new Plugin(op_, fields); });
    return plugin;
  }
  nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override { return &collection_; }
  char const* getPluginName() const noexcept override { return op_.name; }
  char const* getPluginVersion() const noexcept override { return "1"; }
  char const* getPluginNamespace() const noexcept override { return op_.domain; }

 private:
  const opbridge_operator& op_;
  std::vector<nvinfer1::PluginField> fields_;
  nvinfer1::PluginFieldCollection collection_;
};

}  // namespace
}  // namespace opbridge::tensorrt

extern "C" OPBRIDGE_EXPORT void setLoggerFinder(nvinfer1::ILoggerFinder* finder) {
  if (finder != nullptr) opbridge::tensorrt::logger = finder->findLogger();
}

extern "C" OPBRIDGE_EXPORT nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& count) {
  using opbridge::tensorrt::Creator;
  static std::deque<Creator> creators;
  static std::vector<nvinfer1::IPluginCreatorInterface*> listed;
  const opbridge_library& library = *opbridge::detail::library();
  if (listed.empty() && library.error == nullptr) {
    for (int32_t i = 0; i < library.operator_count; ++i)
      listed.push_back(&creators.emplace_back(*library.operators[i]));
  }
  count = static_cast<int32_t>(listed.size());
  return listed.data();
}
