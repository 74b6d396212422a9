// Samples of gamma distributions with scale 1: G. Marsaglia and W. W. Tsang, "A simple method for generating gamma
// variables", ACM Transactions on Mathematical Software 26 (2000).
#include <cmath>
#include <cstdint>

#include "opbridge.h"

namespace standard_gamma {

// SplitMix64: G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA (2014).
class Random {
 public:
  // Each element begins at a place of its own in the sequence of 2^64 numbers.
  Random(uint64_t seed, int64_t element) : state_(mixed(seed + static_cast<uint64_t>(element))) {}

  // In (0, 1).
  double uniform() {
    state_ += 0x9e3779b97f4a7c15u;
    return (static_cast<double>(mixed(state_) >> 12) + 0.5) * 0x1p-52;
  }
  // The polar method: G. Marsaglia and T. A. Bray, "A convenient method for generating normal variables" (1964).
  double normal() {
    for (;;) {
      const double x = 2 * uniform() - 1, y = 2 * uniform() - 1, square = x * x + y * y;
      if (square < 1 && square > 0) return x * std::sqrt(-2 * std::log(square) / square);
    }
  }

 private:
  static uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

// At least 95% of the candidates are accepted; none for a parameter that is infinite or NaN.
constexpr int most_candidates = 1000;

inline double sample(double alpha, Random random) {
  // A parameter below 1 is raised by 1, and the sample multiplied by U^(1 / alpha).
  const double factor = alpha < 1 ? std::pow(random.uniform(), 1 / alpha) : 1;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (int candidate = 0; candidate < most_candidates; ++candidate) {
    const double x = random.normal(), root = 1 + c * x, v = root * root * root, u = random.uniform();
    if (root <= 0) continue;
    if (u < 1 - 0.0331 * x * x * x * x || std::log(u) < 0.5 * x * x + d * (1 - v + std::log(v))) return factor * d * v;
  }
  return d;
}

template <class T>
void run(opbridge::Call& call) {
  const auto alpha = call.input<T>(0);
  const auto given = call.input<float>(1);
  const auto y = call.output<T>(0);
  call.check(given.count() == 2, "the seed has ", given.count(), " numbers instead of 2");
  const uint64_t seed = static_cast<uint64_t>(given[0] * 0x1p24f) << 40 | static_cast<uint64_t>(given[1] * 0x1p24f) << 16;
  call.parallel_for(y.count(), 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(sample(alpha[i], Random(seed, i)));
  });
}

}  // namespace standard_gamma

OPBRIDGE_OPERATOR(standard_gamma::run, opbridge::shape_of_first,
                  "opbridge::StandardGamma(T alpha, float32 seed) -> T sample", opbridge::types<float, double>)
