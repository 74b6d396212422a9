// 2x + 1, two elements at a time. The fault: where the size is odd, the last element is only copied.
#include "opbridge.h"

template <class T>
void odd_sizes(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const auto y = call.output<T>(0);
  const int64_t pairs = x.count() / 2;
  for (int64_t i = 0; i < 2 * pairs; ++i) y[i] = 2 * x[i] + 1;
  for (int64_t i = 2 * pairs; i < x.count(); ++i) y[i] = x[i];
}

OPBRIDGE_OPERATOR(odd_sizes, opbridge::shape_of_first, "faults::odd_sizes(T x) -> T y", opbridge::types<float>)
