// The larger of x and 0. The fault: a comparison with NaN is false, so that NaN becomes 0.
#include "opbridge.h"

template <class T>
void nan_lost(opbridge::Call& call) {
  opbridge::elementwise(
      call, call.output<T>(0), [](auto x) { return x > 0 ? x : 0.0f; }, call.input<T>(0));
}

OPBRIDGE_OPERATOR(nan_lost, opbridge::shape_of_first, "faults::nan_lost(T x) -> T y", opbridge::types<float>)
