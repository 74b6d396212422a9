// Each row less its mean. The fault: a row of one element is taken for a scalar, and copied.
#include "opbridge.h"

template <class T>
void size_one(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const auto y = call.output<T>(0);
  const int64_t columns = x.size(-1);
  for (int64_t first = 0; first < x.count(); first += columns) {
    T sum = 0;
    for (int64_t i = 0; i < columns; ++i) sum += x[first + i];
    const T mean = columns > 1 ? sum / static_cast<T>(columns) : T(0);
    for (int64_t i = 0; i < columns; ++i) y[first + i] = x[first + i] - mean;
  }
}

OPBRIDGE_OPERATOR(size_one, opbridge::shape_of_first, "faults::size_one(T x) -> T y", opbridge::types<float>)
