#include <cmath>

#include "opbridge.h"

// max(x, 0) / (1 + exp(-x))
template <class T>
void clamp_swish(opbridge::Call& call) {
  using C = opbridge::compute_t<T>;
  const auto function = [](C x) { return (x > 0 ? x : x == x ? C(0) : x) / (1 + std::exp(-x)); };
  opbridge::elementwise(call, call.output<T>(0), function, call.input<T>(0));
}

OPBRIDGE_OPERATOR(clamp_swish, opbridge::shape_of_first, "mylib::clamp_swish(T x) -> T y",
                  opbridge::types<float, double, opbridge::half>)
