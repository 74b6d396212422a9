#include "opbridge.h"

// max(x, 0) * sigmoid(x)
template <class T>
void clamp_swish(opbridge::Call& call) {
  using C = opbridge::compute_t<T>;
  const auto function = [](C x) { return (x < 0 ? C(0) : x) * opbridge::sigmoid(x); };
  opbridge::elementwise(call, call.output<T>(0), function, call.input<T>(0));
}

void exponential(opbridge::Call& call) {
  opbridge::elementwise(
      call, call.output<float>(0), [](float x) { return opbridge::exp(x); }, call.input<float>(0));
}

void logarithms(opbridge::Call& call) {
  const auto x = call.input<float>(0);
  opbridge::elementwise(call, call.output<float>(0), [](float x) { return opbridge::log(x); }, x);
  opbridge::elementwise(call, call.output<float>(1), [](float x) { return opbridge::log1p(x); }, x);
}

OPBRIDGE_OPERATOR(clamp_swish, opbridge::shape_of_first, "mylib::clamp_swish(T x) -> T y",
                  opbridge::types<float, double, opbridge::half>)
OPBRIDGE_OPERATOR(exponential, opbridge::shape_of_first, "mylib::exponential(float32 x) -> float32 y")
OPBRIDGE_OPERATOR(logarithms, opbridge::shape_of_first, "mylib::logarithms(float32 x) -> (float32 y, float32 z)")
