// Loops over elements, with broadcasting, in the host's threads.
#pragma once

#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include "opbridge/call.h"

namespace opbridge {

namespace detail {

inline constexpr int64_t elements_per_task = 16384;

// Nested loops over an output and the inputs that are broadcast to it; axis 0 is the innermost. Adjacent axes are merged if
// possible, so contiguous tensors of equal sizes need one loop.
template <size_t Inputs>
struct Nest {
  int rank = 0;
  std::array<int64_t, OPBRIDGE_MAX_RANK> sizes;
  std::array<std::array<int64_t, Inputs>, OPBRIDGE_MAX_RANK> strides;

  void add_outer(int64_t size, const std::array<int64_t, Inputs>& step) {
    if (size == 1) return;
    if (rank > 0) {
      bool mergeable = true;
      for (size_t k = 0; k < Inputs; ++k) mergeable &= step[k] == strides[rank - 1][k] * sizes[rank - 1];
      if (mergeable) {
        sizes[rank - 1] *= size;
        return;
      }
    }
    sizes[rank] = size;
    strides[rank++] = step;
  }
};

// The strides of an input along the axes of the output: 0 for a repeated axis.
inline void broadcast_strides(SizeSpan output, SizeSpan sizes, const int64_t* own, int64_t* strides) {
  const int64_t offset = output.size() - sizes.size();
  bool fits = offset >= 0;
  int64_t contiguous = 1;
  for (int64_t axis = output.size() - 1; fits && axis >= 0; --axis) {
    const int64_t inner = axis - offset;
    strides[axis] = 0;
    if (inner < 0) continue;
    if (sizes[inner] != 1) strides[axis] = own ? own[inner] : contiguous;
    fits = sizes[inner] == output[axis] || sizes[inner] == 1;
    contiguous *= sizes[inner];
  }
  if (!fits)
    throw Error("sizes ", sizes, " can't be broadcast to the output's ", output);
}

template <class T>
void input_strides(SizeSpan output, const Tensor<T>& input, int64_t* strides) {
  broadcast_strides(output, input.sizes(), nullptr, strides);
}
template <class T>
void input_strides(SizeSpan output, const StridedTensor<T>& input, int64_t* strides) {
  int64_t own[OPBRIDGE_MAX_RANK];
  for (int axis = 0; axis < input.rank(); ++axis) own[axis] = input.stride(axis);
  broadcast_strides(output, input.sizes(), own, strides);
}

template <class... Input>
Nest<sizeof...(Input)> make_nest(SizeSpan output, const Input&... inputs) {
  constexpr size_t count = sizeof...(Input);
  int64_t strides[count][OPBRIDGE_MAX_RANK];
  size_t k = 0;
  (input_strides(output, inputs, strides[k++]), ...);
  Nest<count> nest;
  for (int64_t axis = output.size() - 1; axis >= 0; --axis) {
    std::array<int64_t, count> step;
    for (k = 0; k < count; ++k) step[k] = strides[k][axis];
    nest.add_outer(output[axis], step);
  }
  if (nest.rank == 0) {
    nest.sizes[0] = 1;
    nest.strides[0].fill(0);
    nest.rank = 1;
  }
  return nest;
}

// One innermost loop. A stride known at compile time (0 or 1) lets the compiler vectorize it.
template <class Out, class Function, class Pointers, class Strides, size_t... K>
void run_row(Out* __restrict out, int64_t count, const Function& function, const Pointers& pointers,
             const Strides& strides, std::index_sequence<K...>) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<Out>(function(std::get<K>(pointers)[i * std::get<K>(strides)]...));
}

// Replaces the strides that are 0 or 1 by constants, one input after the other.
template <class Out, class Function, class Pointers, size_t Inputs, class... Known>
void choose_row(Out* out, int64_t count, const Function& function, const Pointers& pointers,
                const std::array<int64_t, Inputs>& strides, Known... known) {
  constexpr size_t done = sizeof...(Known);
  if constexpr (done == Inputs) {
    if constexpr ((0 + ... + Known::value) == 0) {
      run_row(out, count, function, pointers, strides, std::make_index_sequence<Inputs>());
    } else {
      run_row(out, count, function, pointers, std::make_tuple(known...), std::make_index_sequence<Inputs>());
    }
  } else if (strides[done] == 1) {
    choose_row(out, count, function, pointers, strides, known..., std::integral_constant<int64_t, 1>());
  } else {
    choose_row(out, count, function, pointers, strides, known..., std::integral_constant<int64_t, 0>());
  }
}

// With more than three inputs, only the most frequent case is compiled apart: none of them is broadcast.
template <class Out, class Function, class Pointers, size_t Inputs>
void row(Out* out, int64_t count, const Function& function, const Pointers& pointers,
         const std::array<int64_t, Inputs>& strides) {
  bool simple = true;
  for (int64_t stride : strides) simple &= stride == 1 || (stride == 0 && Inputs <= 3);
  if (simple) {
    if constexpr (Inputs <= 3) {
      choose_row(out, count, function, pointers, strides);
    } else {
      const std::array<std::integral_constant<int64_t, 1>, Inputs> ones{};
      run_row(out, count, function, pointers, ones, std::make_index_sequence<Inputs>());
    }
    return;
  }
  run_row(out, count, function, pointers, strides, std::make_index_sequence<Inputs>());
}

// Calls run_rows(out, count, pointers, strides) for each innermost loop.
template <class Out, class Rows, class Pointers, size_t Inputs, size_t... K>
void walk(const Nest<Inputs>& nest, int64_t begin, int64_t end, Out* out, const Rows& run_rows, const Pointers& pointers,
          std::index_sequence<K...> each) {
  int64_t index[OPBRIDGE_MAX_RANK];
  std::array<int64_t, Inputs> offset{};
  int64_t rest = begin;
  for (int axis = 0; axis < nest.rank; ++axis) {
    index[axis] = rest % nest.sizes[axis];
    rest /= nest.sizes[axis];
    for (size_t k = 0; k < Inputs; ++k) offset[k] += index[axis] * nest.strides[axis][k];
  }
  for (int64_t position = begin; position < end;) {
    const int64_t left = nest.sizes[0] - index[0];
    const int64_t count = left < end - position ? left : end - position;
    run_rows(out + position, count, std::make_tuple((std::get<K>(pointers) + offset[K])...), nest.strides[0]);
    position += count;
    // Advance to the next row: back to the start of this axis, one step along the next, with carries.
    for (size_t k = 0; k < Inputs; ++k) offset[k] -= index[0] * nest.strides[0][k];
    index[0] = 0;
    for (int axis = 1; axis < nest.rank; ++axis) {
      for (size_t k = 0; k < Inputs; ++k) offset[k] += nest.strides[axis][k];
      if (++index[axis] < nest.sizes[axis]) break;
      for (size_t k = 0; k < Inputs; ++k) offset[k] -= index[axis] * nest.strides[axis][k];
      index[axis] = 0;
    }
  }
  static_cast<void>(each);
}

}  // namespace detail

// Calls run_rows(out, count, pointers, strides) for pieces of the output: count elements from out on, and a pointer and a
// stride per input. The inputs, Tensors or StridedTensors, are broadcast to the output. It runs in several threads.
template <class Out, class Rows, class... Input>
void elementwise_rows(const Call& call, const Tensor<Out>& output, const Rows& run_rows, const Input&... inputs) {
  static_assert(sizeof...(Input) > 0, "opbridge: elementwise needs an input; to fill an output use parallel_for");
  const auto nest = detail::make_nest(output.sizes(), inputs...);
  const auto pointers = std::make_tuple(inputs.data()...);
  call.parallel_for(output.count(), detail::elements_per_task, [&](int64_t begin, int64_t end) {
    detail::walk(nest, begin, end, output.data(), run_rows, pointers, std::index_sequence_for<Input...>());
  });
}

// output = function(input, ...) for every element. The inputs, Tensors or StridedTensors, are broadcast to the output.
// function takes elements as they are stored; its result is converted. It runs in several threads.
template <class Out, class Function, class... Input>
void elementwise(const Call& call, const Tensor<Out>& output, const Function& function, const Input&... inputs) {
  const auto run_rows = [&function](Out* out, int64_t count, const auto& pointers, const auto& strides) {
    detail::row(out, count, function, pointers, strides);
  };
  elementwise_rows(call, output, run_rows, inputs...);
}

template <class T>
Tensor<const T> Call::input(int index) const {
  const T* data = input_data<T>(index);
  const Tensor<const T> plain(data, sizes(index));
  if (call_->inputs[index].strides == nullptr || plain.count() == 0) return plain;
  const Tensor<T> copy(scratch<T>(plain.count()), plain.sizes());
  elementwise(*this, copy, [](T value) { return value; }, strided_input<T>(index));
  return Tensor<const T>(copy.data(), copy.sizes());
}

// Every output has the first input's sizes.
inline void shape_of_first(ShapeCall& call) {
  for (int index = 0; index < call.output_count(); ++index) call.set_output(index, call.sizes(0));
}

// Every output has the broadcast sizes of all inputs.
inline void shape_of_broadcast(ShapeCall& call) {
  Sizes result;
  for (int index = 0; index < call.input_count(); ++index)
    if (call.has_input(index)) result = broadcast(result, call.sizes(index));
  for (int index = 0; index < call.output_count(); ++index) call.set_output(index, result);
}

}  // namespace opbridge
