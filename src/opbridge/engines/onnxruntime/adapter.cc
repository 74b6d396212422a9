// Adds a library of opbridge kernels to ONNX Runtime: RegisterCustomOps, driven only by the table of operators.
// It is compiled together with the kernels into one file, which a program in any language loads with
// register_custom_ops_library.
#include <climits>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "adapter/c_api.h"
#include "adapter/kernel.h"
#include "adapter/shapes.h"
#include "opbridge/registration.h"

namespace opbridge::onnxruntime {
namespace {

// One variant of one operator. ONNX Runtime passes the pointer back to every callback.
struct CustomOp : OrtCustomOp {
  const OrtApi* api;
  const opbridge_operator* op;
  const opbridge_variant* variant;
};

const CustomOp& of(const OrtCustomOp* self) { return *static_cast<const CustomOp*>(self); }

constexpr int required = 0, optional = 1, variadic = 2;

int input_characteristic(const opbridge_argument& argument) {
  if (argument.flags & OPBRIDGE_VARIADIC) return variadic;
  return argument.flags & OPBRIDGE_OPTIONAL ? optional : required;
}

// A node may leave out any unused output, even if the kernel always computes it.
int output_characteristic(const opbridge_argument& argument) {
  return argument.flags & OPBRIDGE_VARIADIC ? variadic : optional;
}

OrtStatus* create_kernel(const OrtCustomOp* self, const OrtApi* api, const OrtKernelInfo* info, void** kernel) {
  return guarded(api, [&] { *kernel = new Kernel(api, of(self).op, of(self).variant, info); });
}

OrtStatus* compute(void* kernel, OrtKernelContext* context) {
  const Kernel& self = *static_cast<const Kernel*>(kernel);
  return guarded(self.api(), [&] { self.compute(context); });
}

OrtStatus* infer_shapes(const OrtCustomOp* self, OrtShapeInferContext* context) {
  return guarded(of(self).api, [&] { ShapeInference(of(self).api, context, *of(self).op).run(); });
}

CustomOp make_custom_op(const OrtApi* api, const opbridge_operator* op, const opbridge_variant* variant) {
  using Self = const OrtCustomOp*;
  CustomOp result{};
  result.api = api;
  result.op = op;
  result.variant = variant;
  result.version = oldest_api;
  result.GetName = [](Self self) { return of(self).op->name; };
  result.GetExecutionProviderType = [](Self) -> const char* { return nullptr; };
  result.GetInputTypeCount = [](Self self) { return static_cast<size_t>(of(self).op->input_count); };
  result.GetOutputTypeCount = [](Self self) { return static_cast<size_t>(of(self).op->output_count); };
  result.GetInputType = [](Self self, size_t i) -> int {
    return opbridge_argument_dtype(&of(self).op->inputs[i], of(self).variant);
  };
  result.GetOutputType = [](Self self, size_t i) -> int {
    return opbridge_argument_dtype(&of(self).op->outputs[i], of(self).variant);
  };
  result.GetInputCharacteristic = [](Self self, size_t i) { return input_characteristic(of(self).op->inputs[i]); };
  result.GetOutputCharacteristic = [](Self self, size_t i) { return output_characteristic(of(self).op->outputs[i]); };
  result.GetInputMemoryType = [](Self, size_t) { return 0; };
  result.GetVariadicInputMinArity = [](Self) { return 0; };
  result.GetVariadicInputHomogeneity = [](Self) { return 1; };
  result.GetVariadicOutputMinArity = [](Self) { return 0; };
  result.GetVariadicOutputHomogeneity = [](Self) { return 1; };
  result.GetStartVersion = [](Self) { return 1; };
  result.GetEndVersion = [](Self) { return INT_MAX; };
  result.CreateKernelV2 = &create_kernel;
  result.KernelComputeV2 = &compute;
  result.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  result.InferOutputShapeFn = can_infer_shapes(*op) ? &infer_shapes : nullptr;
  return result;
}

// The library's domains, for one ONNX Runtime in the process. They are never freed, since every session with this library
// refers to them.
class Domains {
 public:
  explicit Domains(const OrtApi* api) : api_(api) {
    const opbridge_library& library = *detail::library();
    if (library.abi_version != OPBRIDGE_ABI_VERSION)
      throw Error("opbridge kernels: the kernels were built for version ", library.abi_version,
                  " of opbridge's kernel ABI, and their adapter for version ", OPBRIDGE_ABI_VERSION);
    if (library.error != nullptr) throw Error("opbridge kernels: ", library.error);
    for (int32_t i = 0; i < library.operator_count; ++i) {
      const opbridge_operator* op = library.operators[i];
      OrtCustomOpDomain*& domain = domains_[op->domain];
      if (domain == nullptr) check(api, CreateCustomOpDomain(api, op->domain, &domain));
      for (int32_t v = 0; v < op->variant_count; ++v) {
        ops_.push_back(make_custom_op(api, op, &op->variants[v]));
        check(api, CustomOpDomain_Add(api, domain, &ops_.back()));
      }
    }
  }
  void add_to(OrtSessionOptions* options) const {
    for (const auto& domain : domains_) check(api_, AddCustomOpDomain(api_, options, domain.second));
  }

 private:
  const OrtApi* api_;
  std::deque<CustomOp> ops_;
  std::map<std::string, OrtCustomOpDomain*> domains_;
};

void register_operators(OrtSessionOptions* options, const OrtApi* api) {
  static std::mutex mutex;
  static auto& by_api = *new std::map<const OrtApi*, Domains>();
  const std::lock_guard<std::mutex> lock(mutex);
  by_api.try_emplace(api, api).first->second.add_to(options);
}

}  // namespace
}  // namespace opbridge::onnxruntime

extern "C" OPBRIDGE_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  using namespace opbridge::onnxruntime;
  const OrtApi* api = base->GetApi(oldest_api);
  if (api == nullptr) {
    const opbridge::Error error("opbridge kernels need ONNX Runtime 1.", oldest_api, " or newer; this is ",
                                base->GetVersionString());
    return CreateStatus(base->GetApi(1), ort_fail, error.what());
  }
  return guarded(api, [&] { register_operators(options, api); });
}
