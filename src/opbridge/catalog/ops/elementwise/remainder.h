// The remainders of floating-point divisions, exact: with the sign of the dividend, or with that of the divisor.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "opbridge.h"

namespace exact_remainder {

constexpr int64_t block = 512;

// |a| - q |b|, for a whole quotient q = |a| / |b| rounded down; not exact where excess has its sign bit.
struct Rest {
  double value;
  uint64_t excess;
};

// Has its sign bit if the quotient is not below the limit, or the value is NaN.
inline uint64_t excess(double quotient, double value, uint64_t limit) {
  return limit - 1 - (opbridge::detail::bits_of(quotient + 0 * value) & (UINT64_MAX >> 1));
}

// The quotient of two float32 is right after rounding down while it is below 2^28, its product with b has at most 52 bits,
// and so has the difference.
inline Rest rest(float a, float b) {
  const double dividend = std::abs(static_cast<double>(a)), divisor = std::abs(static_cast<double>(b));
  const double quotient = std::floor(dividend / divisor);
  const double value = dividend - quotient * divisor;
  return {value, excess(quotient, value, 0x41b0000000000000)};  // 2^28
}

// b is split into its upper 26 bits and the rest, whose products with a quotient below 2^26 have at most 53 bits; so have
// both differences. A quotient that was rounded up to the next whole number is one too large.
inline Rest rest(double a, double b) {
  const double dividend = std::abs(a), divisor = std::abs(b);
  const double quotient = std::floor(dividend / divisor);
  const double upper = opbridge::detail::double_of(opbridge::detail::bits_of(divisor) & ~uint64_t(0x7ffffff));
  const double first = dividend - quotient * upper - quotient * (divisor - upper);
  const double value = first < 0 ? first + divisor : first;
  return {value, excess(quotient, value, 0x4190000000000000)};  // 2^26
}

// With the sign of the divisor.
template <class Real>
Real floored(Real value, Real b) {
  const Real sum = value + b;
  const Real above = value < 0 ? sum : value, below = value > 0 ? sum : value;
  return b < 0 ? below : above;
}

template <bool is_floored, class T, class StrideA, class StrideB>
void row(T* out, int64_t count, const T* a, const T* b, StrideA step_a, StrideB step_b) {
  using Real = opbridge::compute_t<T>;
  for (int64_t first = 0; first < count; first += block) {
    const int64_t last = std::min(count, first + block);
    uint64_t excesses = 0;
    for (int64_t i = first; i < last; ++i) {
      const Real dividend = a[i * step_a], divisor = b[i * step_b];
      const Rest found = rest(dividend, divisor);
      excesses |= found.excess;
      const Real value = std::copysign(static_cast<Real>(found.value), dividend);
      out[i] = is_floored ? floored(value, divisor) : value;
    }
    if (excesses >> 63 == 0) continue;
    for (int64_t i = first; i < last; ++i) {
      const Real dividend = a[i * step_a], divisor = b[i * step_b];
      if (rest(dividend, divisor).excess >> 63 == 0) continue;
      const Real value = std::fmod(dividend, divisor);
      out[i] = is_floored ? floored(value, divisor) : value;
    }
  }
}

template <bool is_floored, class T>
void run(opbridge::Call& call) {
  using One = std::integral_constant<int64_t, 1>;
  using Zero = std::integral_constant<int64_t, 0>;
  const auto rows = [](T* out, int64_t count, const auto& pointers, const auto& strides) {
    const T *a = std::get<0>(pointers), *b = std::get<1>(pointers);
    if (strides[0] == 1 && strides[1] == 1) row<is_floored>(out, count, a, b, One(), One());
    else if (strides[0] == 1 && strides[1] == 0) row<is_floored>(out, count, a, b, One(), Zero());
    else if (strides[0] == 0 && strides[1] == 1) row<is_floored>(out, count, a, b, Zero(), One());
    else row<is_floored>(out, count, a, b, strides[0], strides[1]);
  };
  opbridge::elementwise_rows(call, call.output<T>(0), rows, call.input<T>(0), call.input<T>(1));
}

template <class T>
void remainder(opbridge::Call& call) {
  run<true, T>(call);
}

template <class T>
void fmod(opbridge::Call& call) {
  run<false, T>(call);
}

}  // namespace exact_remainder

OPBRIDGE_OPERATOR(exact_remainder::remainder, opbridge::shape_of_broadcast, "opbridge::Remainder(T a, T b) -> T y",
                  opbridge::types<float, double, opbridge::half>)
OPBRIDGE_OPERATOR(exact_remainder::fmod, opbridge::shape_of_broadcast, "opbridge::Fmod(T a, T b) -> T y",
                  opbridge::types<float, double, opbridge::half>)
