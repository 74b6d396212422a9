// Makes a kernel the CPU implementation of a torch.library operator. One adapter serves all operators, driven by the
// operator table of the kernel's library; it is compiled once per version of torch.
//
// A call on CPU tensors reaches Autograd first. If no gradient is needed, it is redispatched to the kernel without entering
// Python, which would cost more than the call; otherwise it goes to the function that torch.library.custom_op registered.
// libtorch's stable C interface supports neither: it does not expose requires_grad, can't redispatch below Autograd, and
// takes no symbolic sizes. Hence this uses the C++ interface. The thread pool comes from the stable interface, since
// at::parallel_for is inlined and would add the compiler's OpenMP library next to torch's.
//
// A call that the kernel does not cover (an element type, a rank, a required argument that is None) goes to the operator's
// Python function.
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "opbridge/abi.h"
#include "torch_call.h"

namespace {

using c10::DispatchKey;
using c10::IValue;
using opbridge_torch::Binding;
using opbridge_torch::Destination;
using opbridge_torch::Invocation;

// Throws an error that begins with the operator's name.
[[noreturn]] void fail(const Binding& binding, const std::string& text) {
  const std::string kernel = std::string(binding.op->domain) + "::" + binding.op->name;
  const bool named = text.rfind(binding.target, 0) == 0 || text.rfind(kernel, 0) == 0;
  TORCH_CHECK(false, named ? text : binding.target + ": " + text);
}

class CpuImplementation : public c10::OperatorKernel {
 public:
  explicit CpuImplementation(std::shared_ptr<const Binding> binding) : binding_(std::move(binding)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const size_t count = binding_->destinations.size();
    if (op.schema().arguments().size() != count) fail(*binding_, "declared again since its kernel was attached");
    Invocation invocation(*binding_);
    if (!invocation.take(stack->data() + (stack->size() - count))) {
      if (!binding_->has_body) fail(*binding_, "the kernel does not take " + describe(*stack, count));
      op.callBoxedForDispatchKey(DispatchKey::CompositeExplicitAutograd, *stack);
      return;
    }
    try {
      invocation.run();
    } catch (const c10::Error& error) {
      fail(*binding_, error.what_without_backtrace());
    }
    torch::jit::drop(*stack, count);
    for (int32_t i = 0; i < binding_->op->output_count; ++i) stack->emplace_back(invocation.result(i));
  }

 private:
  static std::string describe(const torch::jit::Stack& stack, size_t count) {
    std::string text;
    for (const IValue& value : torch::jit::last(stack, count)) {
      text += text.empty() ? "" : ", ";
      if (value.isTensor()) text += opbridge_torch::describe(value.toTensor());
      else text += value.tagKind();
    }
    return text;
  }

  std::shared_ptr<const Binding> binding_;
};

class AutogradShortcut : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (c10::GradMode::is_enabled() && wants_gradient(*stack, op.schema().arguments().size())) {
      op.callBoxedForDispatchKey(DispatchKey::Autograd, *stack);
      return;
    }
    at::AutoDispatchBelowAutograd below;
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }

 private:
  static bool requires_grad(const IValue& value) { return value.isTensor() && value.toTensor().requires_grad(); }

  static bool wants_gradient(const torch::jit::Stack& stack, size_t count) {
    for (const IValue& value : torch::jit::last(stack, count)) {
      if (requires_grad(value)) return true;
      if (!value.isList()) continue;
      for (const IValue& item : value.toListRef())
        if (requires_grad(item)) return true;
    }
    return false;
  }
};

// Whether an attribute of this kind holds values of a type, given by its schema text.
bool attribute_takes(int32_t kind, const std::string& type) {
  switch (kind) {
    case OPBRIDGE_KIND_INT: return type == "int" || type == "bool";
    case OPBRIDGE_KIND_FLOAT: return type == "float" || type == "int" || type == "bool" || type == "Scalar";
    case OPBRIDGE_KIND_STRING: return type == "str";
    case OPBRIDGE_KIND_INTS: return type == "int[]" || type == "bool[]";
    case OPBRIDGE_KIND_FLOATS: return type == "float[]" || type == "int[]" || type == "bool[]";
    case OPBRIDGE_KIND_STRINGS: return type == "str[]";
    case OPBRIDGE_KIND_TENSOR: return type == "Tensor";
    default: return false;
  }
}

std::string type_text(const c10::Argument& argument) {
  c10::TypePtr type = argument.type();
  if (const auto* optional = type->castRaw<c10::OptionalType>()) type = optional->getElementType();
  return type->str();
}

// The destination of an argument. Throws if the kernel has none.
Destination place(const opbridge_operator& op, const c10::Argument& argument) {
  const std::string type = type_text(argument);
  for (int32_t i = 0; i < op.input_count; ++i) {
    if (argument.name() != op.inputs[i].name) continue;
    const bool variadic = (op.inputs[i].flags & OPBRIDGE_VARIADIC) != 0;
    const bool fits = variadic ? type == "Tensor[]" : type == "Tensor" || type == "int";
    TORCH_CHECK(fits, "argument '", argument.name(), "' is ", type, " in Python, but ",
                variadic ? "any number of tensors" : "a tensor", " in the kernel");
    return {false, i};
  }
  for (int32_t i = 0; i < op.attribute_count; ++i) {
    if (argument.name() != op.attributes[i].name) continue;
    TORCH_CHECK(attribute_takes(op.attributes[i].kind, type), "argument '", argument.name(), "' is ", type,
                " in Python, which the kernel's attribute can't hold");
    return {true, i};
  }
  TORCH_CHECK(false, "the kernel has no argument '", argument.name(), "'");
}

// Throws if the kernel requires an argument that the torch operator does not have.
void check_complete(const Binding& binding) {
  const auto given = [&](bool attribute, int32_t index) {
    for (const Destination& to : binding.destinations)
      if (to.attribute == attribute && to.index == index) return true;
    return false;
  };
  const auto need = [](bool fulfilled, const char* what, const char* name) {
    TORCH_CHECK(fulfilled, "the kernel needs ", what, " '", name, "', which the Python function does not have");
  };
  const opbridge_operator& op = *binding.op;
  for (int32_t i = 0; i < op.input_count; ++i)
    need(given(false, i) || op.inputs[i].flags != 0, "an input", op.inputs[i].name);
  for (int32_t i = 0; i < op.attribute_count; ++i)
    need(given(true, i) || !op.attributes[i].required, "an attribute", op.attributes[i].name);
}

std::shared_ptr<const Binding> bind(const c10::OperatorHandle& handle, const opbridge_operator& op) {
  const c10::FunctionSchema& schema = handle.schema();
  auto binding = std::make_shared<Binding>();
  binding->target = schema.name();
  binding->op = &op;
  binding->has_body = handle.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd);
  binding->variadic = op.input_count > 0 && (op.inputs[op.input_count - 1].flags & OPBRIDGE_VARIADIC) != 0;
  for (const c10::Argument& argument : schema.arguments()) binding->destinations.push_back(place(op, argument));
  check_complete(*binding);
  TORCH_CHECK(static_cast<int32_t>(schema.returns().size()) == op.output_count, "the Python function returns ",
              schema.returns().size(), " values, the kernel ", op.output_count);
  for (const c10::Argument& result : schema.returns())
    TORCH_CHECK(result.type()->kind() == c10::TypeKind::TensorType, "the Python function returns a ",
                result.type()->str(), "; kernels return tensors");
  return binding;
}

const opbridge_operator& find_kernel(const opbridge_library& library, const std::string& name) {
  for (int32_t i = 0; i < library.operator_count; ++i) {
    const opbridge_operator& op = *library.operators[i];
    if (std::string(op.domain) + "::" + op.name == name) return op;
  }
  TORCH_CHECK(false, "the library has no kernel of this name");
}

template <class Implementation>
void implement(torch::Library& library, const std::string& name, DispatchKey key, Implementation implementation) {
  auto functor = std::make_unique<Implementation>(std::move(implementation));
  library.impl(name.c_str(), torch::dispatch(key, torch::CppFunction::makeFromBoxedFunctor(std::move(functor))));
}

}  // namespace

// Makes the library's kernel "domain::name" the CPU implementation of the torch operator target, replacing previous (which
// may be NULL). Returns a handle for opbridge_torch_detach, or NULL with a text in error; then previous stays in place.
extern "C" OPBRIDGE_EXPORT void* opbridge_torch_attach(
    const char* target, const opbridge_library* kernels, const char* kernel, void* previous, char* error,
    size_t error_size) noexcept {
  try {
    const std::string qualified = target;
    const auto handle = c10::Dispatcher::singleton().findSchema({qualified, ""});
    TORCH_CHECK(handle.has_value(), "torch has no operator of this name");
    auto binding = bind(*handle, find_kernel(*kernels, kernel));
    const size_t colons = qualified.find("::");
    const std::string name = qualified.substr(colons + 2);
    delete static_cast<torch::Library*>(previous);
    auto library = std::make_unique<torch::Library>(
        torch::Library::IMPL, qualified.substr(0, colons), std::nullopt, __FILE__, __LINE__);
    implement(*library, name, DispatchKey::CPU, CpuImplementation(std::move(binding)));
    if (handle->hasKernelForDispatchKey(DispatchKey::Autograd))
      implement(*library, name, DispatchKey::AutogradCPU, AutogradShortcut());
    return library.release();
  } catch (const c10::Error& problem) {
    std::snprintf(error, error_size, "%s", problem.what_without_backtrace());
  } catch (const std::exception& problem) {
    std::snprintf(error, error_size, "%s", problem.what());
  }
  return nullptr;
}

// Restores the operator's Python function.
extern "C" OPBRIDGE_EXPORT void opbridge_torch_detach(void* attachment) noexcept {
  delete static_cast<torch::Library*>(attachment);
}
