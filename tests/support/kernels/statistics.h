#include "opbridge.h"

// The mean, and if somebody wants it, the variance: two type variables and an optional output.
void statistics_shape(opbridge::ShapeCall& call) {
  call.set_output(0, opbridge::Sizes{});
  call.set_output(1, opbridge::Sizes{});
}

template <class T, class W>
void statistics(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const auto weights = call.input<W>(1);
  call.check(x.count() == weights.count() && x.count() > 0, "sizes ", x.sizes(), " need as many weights, got ",
             weights.sizes());
  double sum = 0, squares = 0, total = 0;
  for (int64_t i = 0; i < x.count(); ++i) {
    const double weight = static_cast<double>(weights[i]), value = static_cast<double>(x[i]);
    total += weight;
    sum += weight * value;
    squares += weight * value * value;
  }
  call.output<T>(0)[0] = static_cast<T>(sum / total);
  if (call.has_output(1)) call.output<float>(1)[0] = static_cast<float>(squares / total - sum / total * (sum / total));
}

OPBRIDGE_OPERATOR(statistics, statistics_shape, "mylib::statistics(T x, W weights) -> (T mean, float32? variance)",
                  opbridge::types<float, double>, opbridge::types<int32_t, float>)
