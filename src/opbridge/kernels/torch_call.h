// One call of a kernel by PyTorch: the torch operator's arguments for the kernel, and the functions of the host.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <cstdio>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "opbridge/abi.h"

namespace opbridge_torch {

using c10::IValue;

inline int32_t dtype_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return OPBRIDGE_FLOAT32;
    case c10::ScalarType::Byte: return OPBRIDGE_UINT8;
    case c10::ScalarType::Char: return OPBRIDGE_INT8;
    case c10::ScalarType::UInt16: return OPBRIDGE_UINT16;
    case c10::ScalarType::Short: return OPBRIDGE_INT16;
    case c10::ScalarType::Int: return OPBRIDGE_INT32;
    case c10::ScalarType::Long: return OPBRIDGE_INT64;
    case c10::ScalarType::Bool: return OPBRIDGE_BOOL;
    case c10::ScalarType::Half: return OPBRIDGE_FLOAT16;
    case c10::ScalarType::Double: return OPBRIDGE_FLOAT64;
    case c10::ScalarType::UInt32: return OPBRIDGE_UINT32;
    case c10::ScalarType::UInt64: return OPBRIDGE_UINT64;
    case c10::ScalarType::BFloat16: return OPBRIDGE_BFLOAT16;
    default: return OPBRIDGE_ABSENT;
  }
}

inline c10::ScalarType scalar_type_of(int32_t dtype) {
  switch (dtype) {
    case OPBRIDGE_FLOAT32: return c10::ScalarType::Float;
    case OPBRIDGE_UINT8: return c10::ScalarType::Byte;
    case OPBRIDGE_INT8: return c10::ScalarType::Char;
    case OPBRIDGE_UINT16: return c10::ScalarType::UInt16;
    case OPBRIDGE_INT16: return c10::ScalarType::Short;
    case OPBRIDGE_INT32: return c10::ScalarType::Int;
    case OPBRIDGE_INT64: return c10::ScalarType::Long;
    case OPBRIDGE_BOOL: return c10::ScalarType::Bool;
    case OPBRIDGE_FLOAT16: return c10::ScalarType::Half;
    case OPBRIDGE_FLOAT64: return c10::ScalarType::Double;
    case OPBRIDGE_UINT32: return c10::ScalarType::UInt32;
    case OPBRIDGE_UINT64: return c10::ScalarType::UInt64;
    case OPBRIDGE_BFLOAT16: return c10::ScalarType::BFloat16;
    default: return c10::ScalarType::Undefined;
  }
}

// "float64 of rank 2", for messages.
inline std::string describe(const at::Tensor& tensor) {
  const int32_t dtype = dtype_of(tensor.scalar_type());
  const char* name = dtype == OPBRIDGE_ABSENT ? c10::toString(tensor.scalar_type()) : opbridge_dtype_name(dtype);
  return std::string(name) + " of rank " + std::to_string(tensor.dim());
}

// The kernel's input or attribute that an argument of the torch operator is passed to.
struct Destination {
  bool attribute;
  int32_t index;  // the position of the kernel's input or attribute
};

struct Binding {
  std::string target;
  const opbridge_operator* op;
  std::vector<Destination> destinations;  // one per argument of the torch operator
  bool has_body;
  bool variadic;  // The last input stands for any number of tensors.
};

union Number {
  int64_t integer;
  double real;
};

// One call of the kernel, with its memory.
class Invocation {
 public:
  explicit Invocation(const Binding& binding) : binding_(binding), op_(*binding.op) {
    const int32_t fixed = op_.input_count - (binding.variadic ? 1 : 0);
    inputs_.resize(fixed, opbridge_tensor{nullptr, nullptr, nullptr, 0, OPBRIDGE_ABSENT});
    numbers_.resize(binding.destinations.size());
    for (int32_t i = 0; i < op_.attribute_count; ++i) attributes_.push_back(op_.attributes[i].default_value);
  }
  Invocation(const Invocation&) = delete;
  Invocation& operator=(const Invocation&) = delete;

  // Whether the kernel takes these arguments.
  bool take(IValue* arguments) {
    for (size_t i = 0; i < binding_.destinations.size(); ++i) {
      const Destination& to = binding_.destinations[i];
      const bool taken = to.attribute ? take_attribute(arguments[i], to.index, &numbers_[i])
                                      : take_input(arguments[i], to.index, &numbers_[i]);
      if (!taken) return false;
    }
    variant_ = opbridge_find_variant(&op_, inputs_.data(), static_cast<int32_t>(inputs_.size()));
    return variant_ != nullptr;
  }

  void run() {
    call_.op = &op_;
    call_.inputs = inputs_.data();
    call_.input_count = static_cast<int32_t>(inputs_.size());
    call_.attributes = attributes_.data();
    call_.host_data = this;
    call_.error[0] = '\0';
    find_shapes();
    static const opbridge_host host = {&Invocation::parallel_for, &Invocation::scratch, &Invocation::allocate_output};
    call_.host = &host;
    if (variant_->run(&call_) != 0) TORCH_CHECK(false, call_.error);
    TORCH_CHECK(!pool_failed_, "torch's thread pool failed");
    for (int32_t i = 0; i < op_.output_count; ++i)
      TORCH_CHECK(results_[i].defined(), "the kernel did not allocate output '", op_.outputs[i].name, "'");
  }

  at::Tensor&& result(int32_t index) { return std::move(results_[index]); }

 private:
  bool take_tensor(const at::Tensor& tensor, opbridge_tensor* view) {
    view->dtype = dtype_of(tensor.scalar_type());
    if (view->dtype == OPBRIDGE_ABSENT || tensor.dim() > OPBRIDGE_MAX_RANK) return false;
    view->data = const_cast<void*>(tensor.const_data_ptr());
    view->sizes = const_cast<int64_t*>(tensor.sizes().data());
    view->strides = tensor.is_contiguous() ? nullptr : tensor.strides().data();
    view->rank = static_cast<int32_t>(tensor.dim());
    return true;
  }

  bool take_input(IValue& value, int32_t index, Number* number) {
    if (value.isList()) {
      for (const IValue& item : value.toListRef()) {
        inputs_.emplace_back();
        if (!item.isTensor() || !take_tensor(item.toTensor(), &inputs_.back())) return false;
      }
      return true;
    }
    if (value.isTensor() && value.toTensor().defined()) return take_tensor(value.toTensor(), &inputs_[index]);
    if (value.isNone() || value.isTensor()) return (op_.inputs[index].flags & OPBRIDGE_OPTIONAL) != 0;
    if (!take_number(value, OPBRIDGE_KIND_INT, number)) return false;
    inputs_[index] = opbridge_tensor{&number->integer, nullptr, nullptr, 0, OPBRIDGE_INT64};
    return true;
  }

  static bool take_number(const IValue& value, int32_t kind, Number* number) {
    if (kind == OPBRIDGE_KIND_FLOAT && value.isDouble()) {
      number->real = value.toDouble();
      return true;
    }
    int64_t integer = 0;
    if (value.isBool()) {
      integer = value.toBool();
    } else if (value.isInt()) {
      integer = value.toInt();
    } else {
      const auto known = value.isSymInt() ? value.toSymInt().maybe_as_int() : std::nullopt;
      if (!known) return false;
      integer = *known;
    }
    if (kind == OPBRIDGE_KIND_FLOAT) number->real = static_cast<double>(integer);
    else number->integer = integer;
    return true;
  }

  bool take_attribute(IValue& value, int32_t index, Number* number) {
    const opbridge_attribute& attribute = op_.attributes[index];
    opbridge_value& to = attributes_[index];
    if (value.isNone()) return !attribute.required;
    to.kind = attribute.kind;
    to.count = 1;
    switch (attribute.kind) {
      case OPBRIDGE_KIND_INT:
      case OPBRIDGE_KIND_FLOAT:
        to.data = number;
        return take_number(value, attribute.kind, number);
      case OPBRIDGE_KIND_STRING:
        to.data = value.toStringRef().c_str();
        to.count = static_cast<int64_t>(value.toStringRef().size());
        return true;
      case OPBRIDGE_KIND_TENSOR:
        return take_attribute_tensor(value.toTensor(), &to);
      case OPBRIDGE_KIND_STRINGS:
        take_strings(value.toListRef(), &to);
        return true;
      default:
        return take_numbers(value.toListRef(), attribute.kind == OPBRIDGE_KIND_INTS, &to);
    }
  }

  bool take_attribute_tensor(const at::Tensor& tensor, opbridge_value* to) {
    if (!tensor.is_contiguous()) return false;
    tensors_.emplace_back();
    to->data = &tensors_.back();
    return take_tensor(tensor, &tensors_.back());
  }

  bool take_numbers(c10::ArrayRef<IValue> values, bool integers, opbridge_value* to) {
    const int32_t kind = integers ? OPBRIDGE_KIND_INT : OPBRIDGE_KIND_FLOAT;
    number_lists_.emplace_back(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      if (!take_number(values[i], kind, &number_lists_.back()[i])) return false;
    to->data = number_lists_.back().data();
    to->count = static_cast<int64_t>(values.size());
    return true;
  }

  void take_strings(c10::ArrayRef<IValue> values, opbridge_value* to) {
    string_lists_.emplace_back();
    for (const IValue& value : values)
      string_lists_.back().push_back({value.toStringRef().c_str(), static_cast<int64_t>(value.toStringRef().size())});
    to->data = string_lists_.back().data();
    to->count = static_cast<int64_t>(values.size());
  }

  // Runs the shape function, and allocates the outputs whose sizes it knows.
  void find_shapes() {
    const int32_t count = op_.output_count;
    sizes_.resize(count);
    results_.resize(count);
    outputs_.resize(count);
    for (int32_t i = 0; i < count; ++i)
      outputs_[i] = {nullptr, sizes_[i].values, nullptr, 0, opbridge_argument_dtype(&op_.outputs[i], variant_)};
    call_.outputs = outputs_.data();
    call_.output_count = count;
    call_.host = nullptr;
    if (op_.shape(&call_) != 0) TORCH_CHECK(false, call_.error);
    for (int32_t i = 0; i < count; ++i) {
      opbridge_tensor& output = outputs_[i];
      TORCH_CHECK(output.rank >= 0 && output.rank <= OPBRIDGE_MAX_RANK, "the shape function gives output '",
                  op_.outputs[i].name, "' ", output.rank, " dimensions");
      sizes_[i].rank = output.rank;
      bool known = true;
      for (int64_t size : c10::IntArrayRef(output.sizes, output.rank)) {
        TORCH_CHECK(size >= OPBRIDGE_DATA_DEPENDENT, "the shape function gives output '",
                    op_.outputs[i].name, "' the sizes ", c10::IntArrayRef(output.sizes, output.rank));
        known = known && size != OPBRIDGE_DATA_DEPENDENT;
      }
      if (known) allocate(i, c10::IntArrayRef(output.sizes, output.rank));
      else output.rank = 0;
    }
  }

  void allocate(int32_t index, c10::IntArrayRef sizes) {
    opbridge_tensor& output = outputs_[index];
    try {
      results_[index] = at::Tensor(at::detail::empty_cpu(sizes, scalar_type_of(output.dtype)));
    } catch (const c10::Error& error) {
      TORCH_CHECK(false, "no memory for output '", op_.outputs[index].name, "' of the sizes ", sizes, ": ",
                  error.what_without_backtrace());
    }
    output.data = results_[index].mutable_data_ptr();
    output.sizes = const_cast<int64_t*>(results_[index].sizes().data());
    output.rank = static_cast<int32_t>(sizes.size());
  }

  static int32_t allocate_output(opbridge_call* call, int32_t index, int32_t rank, const int64_t* sizes) {
    auto& self = *static_cast<Invocation*>(call->host_data);
    try {
      TORCH_CHECK(index >= 0 && index < call->output_count && rank >= 0 && rank <= OPBRIDGE_MAX_RANK,
                  "the kernel asks for output ", index, " with ", rank, " dimensions");
      TORCH_CHECK(!self.results_[index].defined(), "the kernel asks for output '", self.op_.outputs[index].name,
                  "', which is allocated already");
      const c10::IntArrayRef asked(sizes, rank);
      const c10::IntArrayRef told(self.sizes_[index].values, self.sizes_[index].rank);
      bool agrees = asked.size() == told.size();
      for (size_t axis = 0; agrees && axis < told.size(); ++axis)
        agrees = asked[axis] >= 0 && (told[axis] == OPBRIDGE_DATA_DEPENDENT || told[axis] == asked[axis]);
      TORCH_CHECK(agrees, "the kernel asks for the sizes ", asked, " of output '", self.op_.outputs[index].name,
                  "', but its shape function gives ", told);
      self.allocate(index, asked);
      return 0;
    } catch (const std::exception& error) {
      const auto* known = dynamic_cast<const c10::Error*>(&error);
      std::snprintf(call->error, sizeof call->error, "%s", known ? known->what_without_backtrace() : error.what());
      return 1;
    }
  }

  static void* scratch(opbridge_call* call, int64_t bytes) {
    try {
      auto& blocks = static_cast<Invocation*>(call->host_data)->scratch_;
      blocks.push_back(c10::GetCPUAllocator()->allocate(static_cast<size_t>(bytes)));
      return blocks.back().get();
    } catch (const std::exception&) {
      return nullptr;
    }
  }

  static void parallel_for(opbridge_call* call, int64_t total, int64_t grain, opbridge_body body, void* user) {
    struct Piece {
      opbridge_body body;
      void* user;
    } piece{body, user};
    const auto run = [](int64_t begin, int64_t end, void* context) {
      const auto& each = *static_cast<Piece*>(context);
      each.body(each.user, begin, end);
    };
    // Torch rounds the number of pieces up, and would make them smaller than the grain.
    const int64_t most = std::max<int64_t>(1, total / grain);
    if (torch_parallel_for(0, total, (total - 1) / most + 1, run, &piece) != 0)
      static_cast<Invocation*>(call->host_data)->pool_failed_ = true;
  }

  struct Sizes {
    int64_t values[OPBRIDGE_MAX_RANK];  // the values from the shape function
    int32_t rank;
  };

  const Binding& binding_;
  const opbridge_operator& op_;
  const opbridge_variant* variant_ = nullptr;
  bool pool_failed_ = false;
  c10::SmallVector<opbridge_tensor, 6> inputs_;
  c10::SmallVector<opbridge_tensor, 2> outputs_;
  c10::SmallVector<opbridge_value, 8> attributes_;
  c10::SmallVector<Number, 12> numbers_;
  c10::SmallVector<Sizes, 2> sizes_;
  c10::SmallVector<at::Tensor, 2> results_;
  c10::SmallVector<c10::DataPtr, 2> scratch_;
  // The call points to elements of these.
  std::list<opbridge_tensor> tensors_;
  std::list<std::vector<Number>> number_lists_;
  std::list<std::vector<opbridge_string>> string_lists_;
  opbridge_call call_;
};

}  // namespace opbridge_torch
