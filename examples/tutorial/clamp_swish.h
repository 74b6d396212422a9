// max(x, 0) / (1 + exp(-x)), in one pass over the tensor.
#include "opbridge.h"

template <class T>
void clamp_swish(opbridge::Call& call) {
  using Real = opbridge::compute_t<T>;  // float for half
  const auto function = [](Real x) {
    const Real clamped = x < 0 ? Real(0) : x;  // a NaN stays one
    return clamped / (1 + opbridge::exp(-x));
  };
  opbridge::elementwise(call, call.output<T>(0), function, call.input<T>(0));
}

OPBRIDGE_OPERATOR(clamp_swish, opbridge::shape_of_first, "mylib::clamp_swish(T x) -> T y",
                  opbridge::types<float, double, opbridge::half>)
