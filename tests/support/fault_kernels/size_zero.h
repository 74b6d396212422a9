// The product of each row. The fault: the product of nothing is 0 instead of 1.
#include "opbridge.h"

void size_zero_shape(opbridge::ShapeCall& call) { call.set_output(0, {call.size(0, 0)}); }

template <class T>
void size_zero(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const auto y = call.output<T>(0);
  const int64_t columns = x.size(-1);
  for (int64_t row = 0; row < y.count(); ++row) {
    T product = columns == 0 ? T(0) : T(1);
    for (int64_t i = 0; i < columns; ++i) product *= x[row * columns + i];
    y[row] = product;
  }
}

OPBRIDGE_OPERATOR(size_zero, size_zero_shape, "faults::size_zero(T x) -> T y", opbridge::types<float>)
