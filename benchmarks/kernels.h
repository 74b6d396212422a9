// Kernels with the arithmetic of native operators of ONNX Runtime, for benchmarks/kernels.py.
#include <cmath>

#include "opbridge.h"

namespace benchmark {

void add(opbridge::Call& call) {
  opbridge::elementwise(
      call, call.output<float>(0), [](float a, float b) { return a + b; }, call.input<float>(0), call.input<float>(1));
}

void hard_sigmoid(opbridge::Call& call) {
  const auto alpha = static_cast<float>(call.attribute_float("alpha"));
  const auto beta = static_cast<float>(call.attribute_float("beta"));
  const auto function = [=](float x) {
    const float y = alpha * x + beta;
    const float above = y < 0 ? 0.0f : y;
    return above > 1 ? 1.0f : above;
  };
  opbridge::elementwise(call, call.output<float>(0), function, call.input<float>(0));
}

// x (1 + erf(x / sqrt(2))) / 2, the error function by Abramowitz and Stegun, 7.1.26.
void gelu(opbridge::Call& call) {
  const auto function = [](float x) {
    const float z = std::fabs(x) * 0.70710678f;
    const float t = 1 / (1 + 0.3275911f * z);
    const float polynomial =
        t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    const float tail = polynomial * opbridge::exp(-z * z);
    return 0.5f * x * (x < 0 ? tail : 2 - tail);
  };
  opbridge::elementwise(call, call.output<float>(0), function, call.input<float>(0));
}

}  // namespace benchmark

OPBRIDGE_OPERATOR(benchmark::add, opbridge::shape_of_broadcast, "benchmark::add(float32 a, float32 b) -> float32 sum")
OPBRIDGE_OPERATOR(benchmark::hard_sigmoid, opbridge::shape_of_first,
                  "benchmark::hard_sigmoid(float32 x, float alpha=0.2, float beta=0.5) -> float32 y")
OPBRIDGE_OPERATOR(benchmark::gelu, opbridge::shape_of_first, "benchmark::gelu(float32 x) -> float32 y")
