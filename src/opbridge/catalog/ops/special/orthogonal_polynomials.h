// Polynomials that a three-term recurrence defines (opbridge/catalog/formulas/orthogonal.py), each element up to its degree.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "opbridge.h"

namespace orthogonal {

constexpr int64_t block = 64;

struct Rule {
  double first, first_slope, slope, slope_rise, constant, constant_rise, weight, weight_rise, divisor_rise, scale, offset;
};

template <class T>
void climb(const Rule& rule, int64_t count, int64_t highest, const T* x, const T* degree, T* result) {
  T earlier[block], latest[block];
  for (int64_t i = 0; i < count; ++i) {
    earlier[i] = degree[i] < 0 ? T(0) : T(1);
    latest[i] = static_cast<T>(rule.first) + static_cast<T>(rule.first_slope) * x[i];
    result[i] = degree[i] < 1 ? earlier[i] : latest[i];
  }
  for (int64_t k = 1; k < highest; ++k) {
    const double step = static_cast<double>(k);
    const T shift = static_cast<T>(rule.constant + rule.constant_rise * step);
    const T factor = static_cast<T>(rule.slope + rule.slope_rise * step);
    const T share = static_cast<T>(rule.weight + rule.weight_rise * step);
    const T divisor = static_cast<T>(1 + rule.divisor_rise * step), next = static_cast<T>(k + 1);
    if (rule.divisor_rise == 0)
      for (int64_t i = 0; i < count; ++i) {
        const T following = (shift + factor * x[i]) * latest[i] - share * earlier[i];
        earlier[i] = latest[i];
        latest[i] = following;
        result[i] = degree[i] >= next ? following : result[i];
      }
    else
      for (int64_t i = 0; i < count; ++i) {
        const T following = ((shift + factor * x[i]) * latest[i] - share * earlier[i]) / divisor;
        earlier[i] = latest[i];
        latest[i] = following;
        result[i] = degree[i] >= next ? following : result[i];
      }
  }
}

template <class T>
void run(opbridge::Call& call) {
  const auto given = call.attribute_floats("rule");
  call.check(given.size() == 11, "expected 11 coefficients, got ", given.size());
  const Rule rule{given[0], given[1], given[2], given[3], given[4], given[5],
                  given[6], given[7], given[8], given[9], given[10]};
  const int64_t limit = call.attribute_int("limit");
  const auto rows = [&](T* out, int64_t count, const auto& pointers, const auto& strides) {
    const T *points = std::get<0>(pointers), *orders = std::get<1>(pointers);
    T x[block], degree[block];
    for (int64_t first = 0; first < count; first += block) {
      const int64_t length = std::min(block, count - first);
      T highest = 0;
      for (int64_t i = 0; i < length; ++i) {
        x[i] = points[(first + i) * strides[0]] * static_cast<T>(rule.scale) + static_cast<T>(rule.offset);
        const T order = orders[(first + i) * strides[1]];
        // A NaN or a huge number counts as below 0. The degree is the order rounded towards 0.
        degree[i] = std::abs(order) < T(4611686018427387904.0) ? std::trunc(order) : T(-1);
        highest = std::max(highest, degree[i]);
      }
      const bool has_limit = limit >= 0;
      const int64_t top = static_cast<int64_t>(highest);
      climb(rule, length, has_limit ? std::min(top, limit) : top, x, degree, out + first);
      if (has_limit && top > limit)
        for (int64_t i = 0; i < length; ++i)
          if (degree[i] > static_cast<T>(limit)) out[first + i] = std::numeric_limits<T>::quiet_NaN();
    }
  };
  opbridge::elementwise_rows(call, call.output<T>(0), rows, call.input<T>(0), call.input<T>(1));
}

}  // namespace orthogonal

OPBRIDGE_OPERATOR(orthogonal::run, opbridge::shape_of_broadcast,
                  "opbridge::OrthogonalPolynomial(T x, T n, string family, float[] rule, int limit) -> T y",
                  opbridge::types<float, double>)
