#include "opbridge.h"

// The largest element along an axis, and where it is.
void largest_shape(opbridge::ShapeCall& call) {
  const int axis = opbridge::normalized_axis(call.attribute_int("axis"), call.rank(0));
  call.check(call.size(0, axis) > 0, "axis ", axis, " of x has no elements: ", call.sizes(0));
  opbridge::Sizes sizes;
  for (int i = 0; i < call.rank(0); ++i)
    if (i != axis) sizes.push_back(call.size(0, i));
  call.set_output(0, sizes);
  call.set_output(1, sizes);
}

template <class T>
void largest(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const auto values = call.output<T>(0);
  const auto indices = call.output<int64_t>(1);
  const int axis = opbridge::normalized_axis(call.attribute_int("axis"), x.rank());
  const int64_t length = x.size(axis);
  int64_t step = 1;
  for (int i = axis + 1; i < x.rank(); ++i) step *= x.size(i);
  call.parallel_for(values.count(), 4096 / length + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t start = i / step * step * length + i % step;
      int64_t best = 0;
      for (int64_t k = 1; k < length; ++k)
        if (x[start + k * step] > x[start + best * step]) best = k;
      values[i] = x[start + best * step];
      indices[i] = best;
    }
  });
}

OPBRIDGE_OPERATOR(largest, largest_shape, "mylib::largest(T x, int axis=-1) -> (T values, int64 indices)",
                  opbridge::types<float, double, int32_t>)
