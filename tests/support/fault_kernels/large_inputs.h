// The logistic function. The fault: exp overflows above 88, and infinity over infinity is NaN.
#include <cmath>

#include "opbridge.h"

template <class T>
void large_inputs(opbridge::Call& call) {
  opbridge::elementwise(
      call, call.output<T>(0),
      [](auto x) {
        const auto e = std::exp(x);
        return e / (1 + e);
      },
      call.input<T>(0));
}

OPBRIDGE_OPERATOR(large_inputs, opbridge::shape_of_first, "faults::large_inputs(T x) -> T y", opbridge::types<float>)
