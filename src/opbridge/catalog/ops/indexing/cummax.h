// The cumulative maximum or minimum along an axis, and the index of its latest occurrence.
#include "opbridge.h"

namespace running_extreme {

void shape(opbridge::ShapeCall& call) {
  call.set_output(0, call.sizes(0));
  call.set_output(1, call.sizes(0));
}

// NaN is the largest for a maximum and the smallest for a minimum.
template <class T, class Beats>
void run(opbridge::Call& call, const Beats& beats) {
  const auto x = call.input<T>(0);
  const auto values = call.output<T>(0);
  const auto indices = call.output<int64_t>(1);
  if (x.count() == 0) return;
  const int axis = opbridge::normalized_axis(call.attribute_int("dim"), x.rank());
  int64_t inner = 1;
  for (int other = axis + 1; other < x.rank(); ++other) inner *= x.size(other);
  const int64_t length = x.size(axis), outer = x.count() / (length * inner);
  call.parallel_for(outer, 1 + 8192 / (length * inner), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      for (int64_t column = 0; column < inner; ++column) {
        int64_t position = block * length * inner + column;
        T best = x[position];
        int64_t place = 0;
        for (int64_t step = 0; step < length; ++step, position += inner) {
          const T value = x[position];
          if (value != value || (best == best && beats(value, best))) {
            best = value;
            place = step;
          }
          values[position] = best;
          indices[position] = place;
        }
      }
  });
}

template <class T>
void maximum(opbridge::Call& call) {
  run<T>(call, [](opbridge::compute_t<T> value, opbridge::compute_t<T> best) { return value >= best; });
}

template <class T>
void minimum(opbridge::Call& call) {
  run<T>(call, [](opbridge::compute_t<T> value, opbridge::compute_t<T> best) { return value <= best; });
}

}  // namespace running_extreme

OPBRIDGE_OPERATOR(running_extreme::maximum, running_extreme::shape,
                  "opbridge::CumMax(T x, int dim) -> (T values, int64 indices)",
                  opbridge::types<float, double, opbridge::half, int32_t, int64_t>)
OPBRIDGE_OPERATOR(running_extreme::minimum, running_extreme::shape,
                  "opbridge::CumMin(T x, int dim) -> (T values, int64 indices)",
                  opbridge::types<float, double, opbridge::half, int32_t, int64_t>)
