// Does what TensorRT does with a library of plugins: finds the creator, makes a plugin, asks it, copies it, runs it.
#include <NvInfer.h>

#include <cstdio>
#include <deque>
#include <vector>

using namespace nvinfer1;

extern "C" IPluginCreatorInterface* const* getCreators(int32_t& count);
extern "C" void setLoggerFinder(ILoggerFinder* finder);

struct Log : ILogger, ILoggerFinder {
  void log(Severity, char const* message) noexcept override { std::printf("log: %s\n", message); }
  ILogger* findLogger() noexcept override { return this; }
};

struct Size : IDimensionExpr {
  Size(int64_t value_, bool known_) : value(value_), known(known_) {}
  bool isConstant() const noexcept override { return known; }
  int64_t getConstantValue() const noexcept override { return value; }
  int64_t value;
  bool known;
};

struct Sizes : IExprBuilder {
  IDimensionExpr const* constant(int64_t value) noexcept override { return &made.emplace_back(value, true); }
  std::deque<Size> made;
};

template <class Capability>
Capability* as(IPluginV3* plugin, PluginCapabilityType type) {
  return static_cast<Capability*>(plugin->getCapabilityInterface(type));
}

int main() {
  Log log;
  setLoggerFinder(&log);
  int32_t count = 0;
  auto* creator = static_cast<IPluginCreatorV3One*>(getCreators(count)[0]);
  std::printf("%d creators: %s::%s version %s, field %s\n", count, creator->getPluginNamespace(),
              creator->getPluginName(), creator->getPluginVersion(), creator->getFieldNames()->fields[0].name);

  const PluginFieldCollection none{0, nullptr};
  std::printf("without its attribute: %s\n", creator->createPlugin("p", &none, TensorRTPhase::kBUILD) ? "made" : "refused");
  const float factor = 2;
  const PluginField field("factor", &factor, PluginFieldType::kFLOAT32, 1);
  const PluginFieldCollection given{1, &field};
  IPluginV3* first = creator->createPlugin("p", &given, TensorRTPhase::kBUILD);
  // What goes into an engine file comes back out of it.
  auto* saved = as<IPluginV3OneRuntime>(first, PluginCapabilityType::kRUNTIME)->getFieldsToSerialize();
  IPluginV3* plugin = creator->createPlugin("p", saved, TensorRTPhase::kRUNTIME)->clone();
  auto* build = as<IPluginV3OneBuild>(plugin, PluginCapabilityType::kBUILD);

  DataType types[2]{}, input_type = DataType::kFLOAT;
  std::printf("types: %d", build->getOutputDataTypes(types, 2, &input_type, 1));
  std::printf(" %d %d of %d outputs\n", types[0] == DataType::kFLOAT, types[1] == DataType::kFLOAT, build->getNbOutputs());

  Size rows(0, false), columns(3, true);
  DimsExprs a{2, {&rows, &columns}}, made[2]{};
  Sizes sizes;
  std::printf("shapes: %d", build->getOutputShapes(&a, 1, nullptr, 0, made, 2, sizes));
  std::printf(" %d %d %d\n", made[0].d[0] == &rows, static_cast<int>(made[0].d[1]->getConstantValue()), made[1].d[0] == &rows);
  DimsExprs flat{1, {&rows}};
  std::printf("of a vector: %d\n", build->getOutputShapes(&flat, 1, nullptr, 0, made, 2, sizes));

  DynamicPluginTensorDesc tensors[3]{};
  for (auto& tensor : tensors) tensor.desc = {{2, {2, 3}}, DataType::kFLOAT, TensorFormat::kLINEAR, 1};
  std::printf("formats: %d", build->supportsFormatCombination(2, tensors, 1, 2));
  tensors[1].desc.type = DataType::kINT32;
  std::printf(" %d", build->supportsFormatCombination(1, tensors, 1, 2));
  tensors[0].desc.format = TensorFormat::kCHW2;
  std::printf(" %d\n", build->supportsFormatCombination(0, tensors, 1, 2));

  auto* runtime = as<IPluginV3OneRuntime>(
      as<IPluginV3OneRuntime>(plugin, PluginCapabilityType::kRUNTIME)->attachToContext(nullptr),
      PluginCapabilityType::kRUNTIME);
  const PluginTensorDesc in[] = {{{2, {2, 3}}, DataType::kFLOAT, TensorFormat::kLINEAR, 1}};
  const PluginTensorDesc out[] = {in[0], {{1, {2}}, DataType::kFLOAT, TensorFormat::kLINEAR, 1}};
  runtime->onShapeChange(in, 1, out, 2);
  const float x[] = {1, 2, 3, 4, 5, 6};
  float y[6]{}, sums[2]{};
  void const* inputs[] = {x};
  void* outputs[] = {y, sums};
  std::printf("run: %d", runtime->enqueue(in, out, inputs, outputs, nullptr, nullptr));
  std::printf(" %g %g %g\n", y[0], y[5], sums[1]);
  return 0;
}
