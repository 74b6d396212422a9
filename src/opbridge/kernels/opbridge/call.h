// The argument of shape functions and kernels.
#pragma once

#include <atomic>
#include <cstring>
#include <exception>
#include <string_view>
#include <type_traits>

#include "opbridge/abi.h"
#include "opbridge/error.h"
#include "opbridge/processor.h"
#include "opbridge/tensor.h"
#include "opbridge/types.h"

namespace opbridge {

// The part that both share: the inputs' sizes, the attributes, errors.
class Arguments {
 public:
  explicit Arguments(opbridge_call* call) : call_(call) {}

  // The number of tensors, including absent optional ones.
  int input_count() const { return call_->input_count; }
  int output_count() const { return call_->output_count; }
  bool has_input(int index) const {
    return index >= 0 && index < call_->input_count && call_->inputs[index].dtype != OPBRIDGE_ABSENT;
  }
  // The sizes of an input. Throws if it is absent.
  SizeSpan sizes(int index) const {
    const opbridge_tensor& tensor = input_tensor(index);
    return SizeSpan(tensor.sizes, tensor.rank);
  }
  // The size of an input's axis; a negative axis counts from the back.
  int64_t size(int index, int axis) const {
    const SizeSpan all = sizes(index);
    return all[normalized_axis(axis, all.size())];
  }
  int rank(int index) const { return static_cast<int>(sizes(index).size()); }
  // The type of an input, such as OPBRIDGE_FLOAT32; OPBRIDGE_ABSENT for an absent input.
  int32_t input_dtype(int index) const { return has_input(index) ? call_->inputs[index].dtype : OPBRIDGE_ABSENT; }

  // Whether an attribute whose default is none was given.
  bool has_attribute(const char* name) const { return find(name).kind != OPBRIDGE_KIND_NONE; }
  int64_t attribute_int(const char* name) const { return *value<int64_t>(name, OPBRIDGE_KIND_INT); }
  double attribute_float(const char* name) const { return *value<double>(name, OPBRIDGE_KIND_FLOAT); }
  std::string_view attribute_string(const char* name) const {
    const char* data = value<char>(name, OPBRIDGE_KIND_STRING);
    return std::string_view(data, static_cast<size_t>(find(name).count));
  }
  Span<const int64_t> attribute_ints(const char* name) const {
    return Span<const int64_t>(value<int64_t>(name, OPBRIDGE_KIND_INTS), find(name).count);
  }
  Span<const double> attribute_floats(const char* name) const {
    return Span<const double>(value<double>(name, OPBRIDGE_KIND_FLOATS), find(name).count);
  }
  Span<const opbridge_string> attribute_strings(const char* name) const {
    return Span<const opbridge_string>(value<opbridge_string>(name, OPBRIDGE_KIND_STRINGS), find(name).count);
  }
  template <class T>
  Tensor<const T> attribute_tensor(const char* name) const {
    const opbridge_tensor& tensor = *value<opbridge_tensor>(name, OPBRIDGE_KIND_TENSOR);
    if (tensor.dtype != dtype_of<T>())
      fail("attribute '", name, "' is a tensor of ", opbridge_dtype_name(tensor.dtype), ", but the kernel reads ",
           opbridge_dtype_name(dtype_of<T>()));
    return Tensor<const T>(static_cast<const T*>(tensor.data), SizeSpan(tensor.sizes, tensor.rank));
  }

  // Ends the call with an error. The parts are strings, numbers and sizes; the message begins with the operator's name.
  template <class... Part>
  [[noreturn]] void fail(const Part&... parts) const {
    throw Error(parts...);
  }
  template <class... Part>
  void check(bool condition, const Part&... parts) const {
    if (!condition) fail(parts...);
  }

 protected:
  const opbridge_tensor& input_tensor(int index) const {
    if (!has_input(index)) {
      if (index < 0 || index >= call_->input_count) fail("there is no input ", index);
      fail("input '", input_name(index), "' is absent: ask has_input first");
    }
    return call_->inputs[index];
  }
  const char* input_name(int index) const {
    return call_->op->inputs[opbridge_argument_index(index, call_->op->input_count)].name;
  }
  const char* output_name(int index) const {
    return call_->op->outputs[opbridge_argument_index(index, call_->op->output_count)].name;
  }
  template <class T>
  const T* input_data(int index) const {
    const opbridge_tensor& tensor = input_tensor(index);
    if (tensor.dtype != dtype_of<T>())
      fail("input '", input_name(index), "' is ", opbridge_dtype_name(tensor.dtype), ", but the kernel reads ",
           opbridge_dtype_name(dtype_of<T>()));
    return static_cast<const T*>(tensor.data);
  }

  opbridge_call* call_;

 private:
  const opbridge_value& find(const char* name) const {
    for (int32_t i = 0; i < call_->op->attribute_count; ++i)
      if (std::strcmp(call_->op->attributes[i].name, name) == 0) return call_->attributes[i];
    fail("the schema has no attribute '", name, "'");
  }
  template <class T>
  const T* value(const char* name, int32_t kind) const {
    const opbridge_value& found = find(name);
    if (found.kind != kind)
      fail("attribute '", name, "' ",
           found.kind == OPBRIDGE_KIND_NONE ? "has no value: ask has_attribute first" : "is read as another kind");
    return static_cast<const T*>(found.data);
  }
};

// Thrown if a shape function needs an input's contents before they exist.
struct ContentsUnknown : Error {
  ContentsUnknown() : Error("the sizes depend on the contents of an input") {}
};

class ShapeCall : public Arguments {
 public:
  using Arguments::Arguments;

  // A size may be data_dependent.
  void set_output(int index, const Sizes& sizes) const {
    if (index < 0 || index >= call_->output_count) fail("there is no output ", index);
    for (int axis = 0; axis < sizes.rank(); ++axis) {
      check(sizes[axis] >= data_dependent, "output '", output_name(index), "' would have the sizes ", sizes);
      call_->outputs[index].sizes[axis] = sizes[axis];
    }
    call_->outputs[index].rank = sizes.rank();
  }
  // The contents of an input, for shapes that depend on them.
  template <class T>
  StridedTensor<const T> input(int index) const {
    const T* data = input_data<T>(index);
    const StridedTensor<const T> tensor(data, sizes(index), call_->inputs[index].strides);
    if (data == nullptr && tensor.count() > 0) throw ContentsUnknown();
    return tensor;
  }
};

class Call : public Arguments {
 public:
  using Arguments::Arguments;

  // Whether this optional output is used.
  bool has_output(int index) const {
    return index >= 0 && index < call_->output_count && call_->outputs[index].dtype != OPBRIDGE_ABSENT;
  }
  // A contiguous tensor: an input with other strides is copied to scratch memory first.
  template <class T>
  Tensor<const T> input(int index) const;
  // The input with its own strides, without a copy.
  template <class T>
  StridedTensor<const T> strided_input(int index) const {
    const T* data = input_data<T>(index);
    return StridedTensor<const T>(data, sizes(index), call_->inputs[index].strides);
  }
  template <class T>
  Tensor<T> output(int index) const {
    const opbridge_tensor& tensor = output_tensor(index, dtype_of<T>());
    const Tensor<T> result(static_cast<T*>(tensor.data), SizeSpan(tensor.sizes, tensor.rank));
    check(tensor.data != nullptr || result.count() == 0, "output '", output_name(index),
          "' has data-dependent sizes: ask allocate_output for it");
    return result;
  }
  // Allocates an output for which the shape function left a size data_dependent.
  template <class T>
  Tensor<T> allocate_output(int index, const Sizes& sizes) const {
    output_tensor(index, dtype_of<T>());
    for (int64_t size : sizes) check(size >= 0, "output '", output_name(index), "' would have the sizes ", sizes);
    if (call_->host->allocate_output(call_, index, sizes.rank(), sizes.begin()) != 0)
      fail(static_cast<const char*>(call_->error));
    const opbridge_tensor& tensor = call_->outputs[index];
    return Tensor<T>(static_cast<T*>(tensor.data), SizeSpan(tensor.sizes, tensor.rank));
  }

  // Memory for count elements, uninitialised, valid until the kernel returns. Must not be called in a parallel_for body.
  template <class T>
  T* scratch(int64_t count) const {
    static_assert(std::is_trivially_destructible_v<T>, "opbridge: scratch memory is not destructed");
    check(count >= 0 && count <= INT64_MAX / static_cast<int64_t>(sizeof(T)), "scratch memory for ", count, " elements");
    void* memory = call_->host->scratch(call_, count > 0 ? count * static_cast<int64_t>(sizeof(T)) : 1);
    check(memory != nullptr, "no memory for ", count, " elements of scratch");
    return static_cast<T*>(memory);
  }

  // Covers [0, total) with calls body(begin, end) in the host's threads, each of at least grain steps (except the last). An
  // exception in a body is rethrown here when all have ended; pieces that have not begun by then are skipped. A body may
  // call only fail and check of this object.
  template <class Body>
  void parallel_for(int64_t total, int64_t grain, const Body& body) const {
    if (total <= 0) return;
    if (grain < 1) grain = 1;
    if (total <= grain) {
      detail::run_body(body, 0, total);
      return;
    }
    Loop<Body> loop{&body, {false}, nullptr};
    call_->host->parallel_for(call_, total, grain, &Loop<Body>::run, &loop);
    if (loop.error) std::rethrow_exception(loop.error);
  }

 private:
  template <class Body>
  struct Loop {
    const Body* body;
    std::atomic<bool> failed;
    std::exception_ptr error;

    static void run(void* self, int64_t begin, int64_t end) noexcept {
      Loop& loop = *static_cast<Loop*>(self);
      if (loop.failed.load(std::memory_order_relaxed)) return;
      try {
        detail::run_body(*loop.body, begin, end);
      } catch (...) {
        if (!loop.failed.exchange(true)) loop.error = std::current_exception();
      }
    }
  };

  const opbridge_tensor& output_tensor(int index, int32_t dtype) const {
    if (!has_output(index)) {
      if (index < 0 || index >= call_->output_count) fail("there is no output ", index);
      fail("nobody wants output '", output_name(index), "': ask has_output first");
    }
    const opbridge_tensor& tensor = call_->outputs[index];
    if (tensor.dtype != dtype)
      fail("output '", output_name(index), "' is ", opbridge_dtype_name(tensor.dtype), ", but the kernel writes ",
           opbridge_dtype_name(dtype));
    return tensor;
  }
};

}  // namespace opbridge
