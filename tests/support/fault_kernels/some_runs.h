// 2x + 1. The fault: in a quarter of the runs, by chance, the first element is off by a tenth.
#include <random>

#include "opbridge.h"

template <class T>
void some_runs(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const auto y = call.output<T>(0);
  for (int64_t i = 0; i < x.count(); ++i) y[i] = 2 * x[i] + 1;
  if (x.count() != 0 && std::random_device{}() % 4 == 0) y[0] = y[0] + T(0.1);
}

OPBRIDGE_OPERATOR(some_runs, opbridge::shape_of_first, "faults::some_runs(T x) -> T y", opbridge::types<float>)
