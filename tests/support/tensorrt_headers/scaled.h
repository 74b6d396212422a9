// b + factor * a, with a second output that has the rows' sums.
#include "opbridge.h"

inline void scaled_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 2, "a must be a matrix");
  call.set_output(0, call.sizes(0));
  call.set_output(1, {call.sizes(0)[0]});
}

template <class T>
void scaled(opbridge::Call& call) {
  const auto a = call.input<T>(0);
  const auto factor = static_cast<T>(call.attribute_float("factor"));
  const auto y = call.output<T>(0);
  const auto sums = call.output<T>(1);
  for (int64_t row = 0; row < a.size(0); ++row) {
    sums[row] = 0;
    for (int64_t i = row * a.size(1); i < (row + 1) * a.size(1); ++i) {
      y[i] = factor * a[i] + (call.has_input(1) ? call.input<T>(1)[i] : T(0));
      sums[row] += y[i];
    }
  }
}

OPBRIDGE_OPERATOR(scaled, scaled_shape, "mylib::scaled(T a, T? b, float factor) -> (T y, T sums)",
                  opbridge::types<float, int32_t>)
