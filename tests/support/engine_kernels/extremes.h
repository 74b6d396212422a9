#include "opbridge.h"

// The largest element of factor * x + offset along an axis, and where it is. A factor of zero is an error of the run.
void extremes_shape(opbridge::ShapeCall& call) {
  const int axis = opbridge::normalized_axis(call.attribute_int("axis"), call.rank(0));
  opbridge::Sizes sizes;
  for (int i = 0; i < call.rank(0); ++i)
    if (i != axis) sizes.push_back(call.size(0, i));
  call.set_output(0, sizes);
  call.set_output(1, sizes);
}

template <class T>
void extremes(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const auto values = call.output<T>(0);
  const auto indices = call.output<int64_t>(1);
  const T factor = static_cast<T>(call.attribute_int("factor"));
  call.check(factor != T{0}, "the factor must not be zero");
  const T* offset = call.has_input(1) ? call.input<T>(1).data() : nullptr;
  const int axis = opbridge::normalized_axis(call.attribute_int("axis"), x.rank());
  const int64_t length = x.size(axis);
  int64_t step = 1;
  for (int i = axis + 1; i < x.rank(); ++i) step *= x.size(i);
  call.parallel_for(values.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t start = i / step * step * length + i % step;
      indices[i] = 0;
      for (int64_t k = 0; k < length; ++k) {
        const int64_t place = start + k * step;
        const T value = factor * x[place] + (offset != nullptr ? offset[place] : T{0});
        if (k == 0 || value > values[i]) {
          values[i] = value;
          indices[i] = k;
        }
      }
    }
  });
}

OPBRIDGE_OPERATOR(extremes, extremes_shape,
                  "enginetest::extremes(T x, T? offset, int factor=2, int axis=-1) -> (T values, int64 indices)",
                  opbridge::types<float, double, int64_t>)
