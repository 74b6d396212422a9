#include "opbridge.h"

// The sum of any number of tensors of equal sizes.
template <class T>
void sum_all(opbridge::Call& call) {
  const auto y = call.output<T>(0);
  T* sum = y.data();
  for (int64_t i = 0; i < y.count(); ++i) sum[i] = T(0);
  for (int k = 0; k < call.input_count(); ++k) {
    const auto x = call.input<T>(k);
    call.check(x.count() == y.count(), "tensor ", k, " has sizes ", x.sizes(), ", the first has ", y.sizes());
    for (int64_t i = 0; i < y.count(); ++i) sum[i] = sum[i] + x[i];
  }
}

// x and any number of tensors, none included: how many there are, and the sum of their counts.
void count_more_shape(opbridge::ShapeCall& call) { call.set_output(0, {2}); }

template <class T>
void count_more(opbridge::Call& call) {
  const auto y = call.output<T>(0);
  y[0] = static_cast<T>(call.input_count() - 1);
  y[1] = T(0);
  for (int k = 1; k < call.input_count(); ++k) y[1] = y[1] + static_cast<T>(call.input<T>(k).count());
}

// How many tensors there are, none included.
void how_many_shape(opbridge::ShapeCall& call) { call.set_output(0, {}); }

template <class T>
void how_many(opbridge::Call& call) {
  call.output<int64_t>(0)[0] = call.input_count();
}

// The rows of a tensor, a tensor each.
void unstack_shape(opbridge::ShapeCall& call) {
  call.check(call.size(0, 0) == call.output_count(), "x has ", call.size(0, 0), " rows for ", call.output_count(),
             " outputs");
  opbridge::Sizes sizes;
  for (int axis = 1; axis < call.rank(0); ++axis) sizes.push_back(call.size(0, axis));
  for (int k = 0; k < call.output_count(); ++k) call.set_output(k, sizes);
}

template <class T>
void unstack(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  for (int k = 0; k < call.output_count(); ++k) {
    const auto row = call.output<T>(k);
    for (int64_t i = 0; i < row.count(); ++i) row[i] = x[k * row.count() + i];
  }
}

OPBRIDGE_OPERATOR(sum_all, opbridge::shape_of_first, "mylib::sum_all(T... xs) -> T y", opbridge::types<float, int64_t>)
OPBRIDGE_OPERATOR(count_more, count_more_shape, "mylib::count_more(T x, T... more) -> T y",
                  opbridge::types<float, int64_t>)
OPBRIDGE_OPERATOR(how_many, how_many_shape, "mylib::how_many(T... xs) -> int64 n", opbridge::types<float, int64_t>)
OPBRIDGE_OPERATOR(unstack, unstack_shape, "mylib::unstack(T x) -> T... rows", opbridge::types<float>)
