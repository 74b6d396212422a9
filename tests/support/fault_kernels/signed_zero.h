// 3x. The fault: a bias of 0 is added, and -0.0 + 0.0 is 0.0.
#include "opbridge.h"

template <class T>
void signed_zero(opbridge::Call& call) {
  opbridge::elementwise(
      call, call.output<T>(0), [](auto x) { return 3 * x + 0.0f; }, call.input<T>(0));
}

OPBRIDGE_OPERATOR(signed_zero, opbridge::shape_of_first, "faults::signed_zero(T x) -> T y", opbridge::types<float>)
