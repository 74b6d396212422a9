// Adds a library of opbridge kernels to ExecuTorch. The operators are registered on request, driven only by the library's
// table. ExecuTorch's kernels are plain functions without user data, so each operator gets one of a set of numbered
// functions.
#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>
#include <executorch/runtime/kernel/operator_registry.h>

#include "opbridge/attributes.h"
#include "opbridge/registration.h"
#include "opbridge/schema.h"

// Runs a kernel on a call's values; returns NULL, or a text that is valid until the thread's next call.
typedef const char* (*opbridge_executorch_run)(const void* data, void* values);

namespace opbridge::executorch {
namespace {

namespace et = ::executorch::runtime;
using et::EValue;
using Tensor = ::executorch::aten::Tensor;

// The error text of the last kernel that failed in this thread, since ExecuTorch's own errors are numbers.
thread_local std::string last_error;

int32_t dtype_of(::executorch::aten::ScalarType type) {
  using Type = ::executorch::aten::ScalarType;
  switch (type) {
    case Type::Float: return OPBRIDGE_FLOAT32;
    case Type::Double: return OPBRIDGE_FLOAT64;
    case Type::Half: return OPBRIDGE_FLOAT16;
    case Type::BFloat16: return OPBRIDGE_BFLOAT16;
    case Type::Bool: return OPBRIDGE_BOOL;
    case Type::Byte: return OPBRIDGE_UINT8;
    case Type::Char: return OPBRIDGE_INT8;
    case Type::Short: return OPBRIDGE_INT16;
    case Type::Int: return OPBRIDGE_INT32;
    case Type::Long: return OPBRIDGE_INT64;
    default: throw Error("a tensor has an element type that kernels don't know");
  }
}

// The end of a parameter's text: the comma or parenthesis that follows it.
size_t parameter_end(std::string_view text) {
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) quote = c == quote ? 0 : quote;
    else if (c == '\'' || c == '"') quote = c;
    else if (depth == 0 && (c == ',' || c == ')')) return i;
    else depth += (c == '[') - (c == ']');
  }
  return text.size();
}

// Whether each parameter of a schema, in order, is an input; the others are attributes.
std::vector<bool> parameters_of(const opbridge_operator& op) {
  std::vector<bool> result;
  std::string_view rest = op.schema;
  rest.remove_prefix(rest.find('(') + 1);
  for (int32_t i = 0; i < op.input_count + op.attribute_count; ++i) {
    const size_t end = parameter_end(rest);
    detail::Cursor cursor{rest.substr(0, end)};
    result.push_back(detail::kind_by_name(cursor.word()) == OPBRIDGE_KIND_NONE);
    rest.remove_prefix(end < rest.size() ? end + 1 : end);
  }
  return result;
}

struct Registered {
  const opbridge_operator* op;
  std::string name;
  std::vector<bool> parameters;
};

// One call of a kernel, with its memory. ExecuTorch plans memory ahead of time: an output has room for its largest size.
class KernelCall {
 public:
  KernelCall(const Registered& registered, et::Span<EValue*> values) : registered_(registered) {
    const opbridge_operator& op = *registered.op;
    size_t position = 0;
    int32_t attribute = 0;
    for (const bool is_input : registered.parameters) {
      const EValue& value = *values[position++];
      if (is_input) add_input(value);
      else add_attribute(op.attributes[attribute++], value);
    }
    for (int32_t i = 0; i < op.output_count; ++i) outputs_given_.push_back(&values[position++]->toTensor());
    for (Tensor* tensor : outputs_given_) {
      int64_t* sizes = sizes_.emplace_back(OPBRIDGE_MAX_RANK, 0).data();
      outputs_.push_back({nullptr, sizes, nullptr, 0, dtype_of(tensor->scalar_type())});
    }
    call_.op = &op;
    call_.inputs = inputs_.data();
    call_.outputs = outputs_.data();
    call_.attributes = attributes_.values.data();
    call_.host_data = this;
    call_.input_count = static_cast<int32_t>(inputs_.size());
    call_.output_count = op.output_count;
  }

  void run() {
    const opbridge_operator& op = *registered_.op;
    const opbridge_variant* variant = opbridge_find_variant(&op, inputs_.data(), call_.input_count);
    if (variant == nullptr) throw Error(op.domain, "::", op.name, " has no kernel for these element types");
    finish(op.shape(&call_));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      bool known = true;
      for (int32_t axis = 0; axis < outputs_[i].rank; ++axis) known &= outputs_[i].sizes[axis] >= 0;
      if (known) allocate(i, outputs_[i].rank, outputs_[i].sizes);
      else outputs_[i].rank = 0;
    }
    const opbridge_host host{parallel_for, scratch, allocate_output};
    call_.host = &host;
    finish(variant->run(&call_));
  }

 private:
  void add_input(const EValue& value) {
    if (value.isNone()) {
      inputs_.push_back({nullptr, nullptr, nullptr, 0, OPBRIDGE_ABSENT});
      return;
    }
    const Tensor& tensor = value.toTensor();
    auto& sizes = sizes_.emplace_back(tensor.sizes().begin(), tensor.sizes().end());
    auto& strides = sizes_.emplace_back(tensor.strides().begin(), tensor.strides().end());
    inputs_.push_back({tensor.mutable_data_ptr(), sizes.data(), strides.data(), static_cast<int32_t>(tensor.dim()),
                       dtype_of(tensor.scalar_type())});
  }

  void add_attribute(const opbridge_attribute& attribute, const EValue& value) {
    if (value.isNone()) {
      attributes_.set_default(*registered_.op, attribute);
    } else if (value.isString()) {
      attributes_.set_string(std::string(value.toString()));
    } else if (value.isIntList()) {
      const auto list = value.toIntList();
      attributes_.set_ints({list.begin(), list.end()}, attribute.kind);
    } else if (value.isDoubleList()) {
      const auto list = value.toDoubleList();
      attributes_.set_doubles({list.begin(), list.end()}, attribute.kind);
    } else if (attribute.kind == OPBRIDGE_KIND_FLOAT) {
      attributes_.set_doubles({value.isDouble() ? value.toDouble() : static_cast<double>(value.toInt())}, attribute.kind);
    } else {
      attributes_.set_ints({value.isBool() ? static_cast<int64_t>(value.toBool()) : value.toInt()}, attribute.kind);
    }
  }

  void allocate(size_t index, int32_t rank, const int64_t* sizes) {
    Tensor& tensor = *outputs_given_[index];
    std::vector<::executorch::aten::SizesType> wanted(sizes, sizes + rank);
    if (et::resize_tensor(tensor, {wanted.data(), wanted.size()}) != et::Error::Ok)
      throw Error(registered_.op->domain, "::", registered_.op->name, ": output '", registered_.op->outputs[index].name,
                  "' needs the sizes ", SizeSpan(sizes, rank), ", for which the program has planned no memory");
    outputs_[index].data = tensor.mutable_data_ptr();
    outputs_[index].rank = rank;
    if (sizes != outputs_[index].sizes) std::copy(sizes, sizes + rank, outputs_[index].sizes);
  }

  void finish(int32_t failed) const {
    if (failed != 0) throw Error(static_cast<const char*>(call_.error));
  }

  static KernelCall& self(opbridge_call* call) { return *static_cast<KernelCall*>(call->host_data); }
  // In one thread, like ExecuTorch's own portable kernels.
  static void parallel_for(opbridge_call*, int64_t total, int64_t, opbridge_body body, void* user) { body(user, 0, total); }
  static void* scratch(opbridge_call* call, int64_t bytes) {
    constexpr int64_t alignment = 64;
    if (bytes > INT64_MAX / 2) return nullptr;
    void* memory = std::aligned_alloc(alignment, static_cast<size_t>((bytes + alignment - 1) / alignment * alignment));
    if (memory != nullptr) self(call).scratch_.emplace_back(memory, &std::free);
    return memory;
  }
  static int32_t allocate_output(opbridge_call* call, int32_t index, int32_t rank, const int64_t* sizes) noexcept {
    try {
      if (index < 0 || index >= call->output_count || call->outputs[index].data != nullptr)
        throw Error("output ", index, " is allocated already: allocate_output is for data-dependent sizes, once");
      self(call).allocate(static_cast<size_t>(index), rank, sizes);
      return 0;
    } catch (const std::exception& error) {
      std::snprintf(call->error, sizeof call->error, "%s", error.what());
      return 1;
    }
  }

  const Registered& registered_;
  std::deque<std::vector<int64_t>> sizes_;
  std::vector<opbridge_tensor> inputs_;
  std::vector<opbridge_tensor> outputs_;
  std::vector<Tensor*> outputs_given_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> scratch_;
  Attributes attributes_;
  opbridge_call call_{};
};

// The operator of each numbered function. ExecuTorch never removes a kernel, so a library that is loaded later takes over
// the slots of an earlier one: run and data are then that library's.
struct Slot {
  opbridge_executorch_run run;
  const void* data;
};

std::array<Slot, 128> slots{};

const char* run_registered(const void* data, void* values) noexcept {
  static thread_local std::string error;
  try {
    KernelCall(*static_cast<const Registered*>(data), *static_cast<et::Span<EValue*>*>(values)).run();
    return nullptr;
  } catch (const std::exception& failed) {
    error = failed.what();
  }
  return error.c_str();
}

template <size_t number>
void numbered(et::KernelRuntimeContext& context, et::Span<EValue*> values) {
  const char* error = slots[number].run(slots[number].data, &values);
  if (error == nullptr) return;
  last_error = error;
  context.fail(et::Error::InvalidArgument);
}

template <size_t... number>
constexpr std::array<et::OpFunction, sizeof...(number)> make_functions(std::index_sequence<number...>) {
  return {&numbered<number>...};
}
constexpr auto functions = make_functions(std::make_index_sequence<std::tuple_size_v<decltype(slots)>>());

// The descriptions of the library's operators; throws if the library can't be used.
const std::deque<Registered>& operators() {
  static const std::deque<Registered> all = [] {
    std::deque<Registered> result;
    const opbridge_library& library = *detail::library();
    if (library.abi_version != OPBRIDGE_ABI_VERSION) throw Error("the kernels are for another version of the kernel ABI");
    if (library.error != nullptr) throw Error(library.error);
    for (int32_t i = 0; i < library.operator_count; ++i) {
      const opbridge_operator& op = *library.operators[i];
      result.push_back({&op, std::string(op.domain) + "::" + op.name + ".out", parameters_of(op)});
    }
    if (result.size() > slots.size()) throw Error("ExecuTorch takes at most ", slots.size(), " operators of a library");
    return result;
  }();
  return all;
}

const char* noted(const std::exception& error) noexcept {
  last_error = error.what();
  return last_error.c_str();
}

}  // namespace
}  // namespace opbridge::executorch

using namespace opbridge::executorch;

// Registers one operator of the library; returns NULL, or why it can't be registered.
extern "C" OPBRIDGE_EXPORT const char* opbridge_executorch_register_one(int32_t index) {
  try {
    const Registered& found = operators().at(static_cast<size_t>(index));
    slots[static_cast<size_t>(index)] = {run_registered, &found};
    const et::Kernel kernel(found.name.c_str(), functions[static_cast<size_t>(index)]);
    if (et::register_kernels({&kernel, 1}) != et::Error::Ok)
      throw opbridge::Error(found.name.c_str(), " is registered already, by another library of this process");
    return nullptr;
  } catch (const std::exception& error) {
    return noted(error);
  }
}

// Registers all operators of the library, for a program that loads it; returns NULL, or why they can't be registered.
extern "C" OPBRIDGE_EXPORT const char* opbridge_executorch_register() {
  for (int32_t index = 0; index < opbridge_get_library()->operator_count; ++index)
    if (const char* problem = opbridge_executorch_register_one(index)) return problem;
  return nullptr;
}

// The function that another library runs for one of its operators once this library is loaded.
extern "C" OPBRIDGE_EXPORT const char* opbridge_executorch_runner(int32_t index, opbridge_executorch_run* run,
                                                                  const void** data) {
  try {
    *run = run_registered;
    *data = &operators().at(static_cast<size_t>(index));
    return nullptr;
  } catch (const std::exception& error) {
    return noted(error);
  }
}

// Runs another library's kernel in place of the operator registered as index.
extern "C" OPBRIDGE_EXPORT void opbridge_executorch_redirect(int32_t index, opbridge_executorch_run run, const void* data) {
  slots[static_cast<size_t>(index)] = {run, data};
}

// The text of the last error in this thread of an operator that this library registered. The text is then cleared.
extern "C" OPBRIDGE_EXPORT const char* opbridge_executorch_take_error() {
  static thread_local std::string taken;
  taken = std::exchange(last_error, std::string());
  return taken.c_str();
}
