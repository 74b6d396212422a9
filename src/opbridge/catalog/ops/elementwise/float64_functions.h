// Functions of float64 numbers that ONNX Runtime has no kernels for, in loops that the compiler vectorizes.
//
// The polynomials were fitted at Chebyshev nodes with 40 digits; their relative errors are below 1e-16. The results are
// within 2.5 units in the last place.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "opbridge.h"

namespace float64_functions {

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;  // 33 bits, and the rest
constexpr double ln2 = 0.69314718055994530942, pi = 3.14159265358979323846;
constexpr double huge = 268435456.0;  // Beside its square, 1 is nothing.

using opbridge::detail::bits_of;
using opbridge::detail::double_of;

// c0 + c1 z + ..., in pairs of terms, for the square of z.
inline double pairs(double, double, double c0) { return c0; }
inline double pairs(double z, double, double c0, double c1) { return c0 + z * c1; }
template <class... Rest>
double pairs(double z, double square, double c0, double c1, double c2, Rest... rest) {
  return (c0 + z * c1) + square * pairs(z, square, c2, rest...);
}
template <class... Coefficient>
double polynomial(double z, Coefficient... coefficients) {
  return pairs(z, z * z, coefficients...);
}

// x = 2^power (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), and log(1 + f).
struct Logarithm {
  double power, rest;
};
inline Logarithm logarithm(double x) {
  const bool subnormal = x < std::numeric_limits<double>::min();
  const uint64_t bits = bits_of(subnormal ? x * 18014398509481984.0 : x);  // 2^54
  const uint64_t above = bits - 0x3fe6a09e667f3bcdULL + (uint64_t(1024) << 52);  // the bits of sqrt(1/2)
  // The exponent becomes the last bits of 2^52.
  const double biased = double_of((above >> 52) | 0x4330000000000000ULL) - 4503599627370496.0;
  const double f = double_of(bits - (above & 0xfff0000000000000ULL) + (uint64_t(1024) << 52)) - 1.0;
  const double s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
  const double tail = z * polynomial(z, 0.666666666666667, 0.3999999999989924, 0.2857142862609589, 0.2222221111514416,
                                     0.18182890556695602, 0.1533167403016786, 0.1461703754879165);
  return {biased - (subnormal ? 1078.0 : 1024.0), f - (half_square - s * (half_square + tail))};
}
// The logarithm's values outside of the positive numbers.
inline double with_limits(double x, double result) {
  const double positive = x < infinity ? result : x;
  return x > 0 ? positive : x == 0 ? -infinity : nan;
}
inline double log(double x) {
  const Logarithm found = logarithm(x);
  return with_limits(x, found.power * ln2_high + (found.rest + found.power * ln2_low));
}
inline double log2(double x) {
  const Logarithm found = logarithm(x);
  return with_limits(x, found.power + found.rest * 1.44269504088896340736);
}
inline double log10(double x) {
  const Logarithm found = logarithm(x);
  constexpr double high = 3.01029995663611771306e-01, low = 3.69423907715893078616e-13;  // log10(2) in two parts
  return with_limits(x, found.power * high + (found.rest * 0.43429448190325182765 + found.power * low));
}
// The rounding error of 1 + x is made good to first order.
inline double log1p(double x) {
  const double sum = 1.0 + x;
  const double corrected = log(sum) + (x - (sum - 1.0)) / sum;
  return (sum > 0) & (sum < infinity) ? corrected : log(sum);
}
// log(1 + x), or log(2 size) for a huge size.
inline double log_of_sum(double x, double size) {
  const bool is_usual = size < huge;
  const double sum = is_usual ? 1.0 + x : size;
  return log(sum) + (is_usual ? (x - (sum - 1.0)) / sum : ln2);
}

// exp(x) 2^extra for -746 < x < 711, if 2^(n + extra) is a normal number for x = n ln 2 + r, |r| <= ln 2 / 2.
inline double exp(double x, int extra) {
  constexpr double rounder = 6755399441055744.0;  // 1.5 * 2^52 rounds to a whole number.
  const double shifted = x * 1.44269504088896340736 + rounder;
  const double n = shifted - rounder;
  const double r = (x - n * ln2_high) - n * ln2_low;
  const double tail = polynomial(r, 0.5000000000000001, 0.16666666666666669, 0.04166666666662404, 0.008333333333330055,
                                 0.0013888888917258759, 0.00019841269863088255, 2.4801521225986432e-05,
                                 2.7557268406190795e-06, 2.7620121717381933e-07, 2.51004110820149e-08);
  const double power = double_of((bits_of(shifted) + static_cast<uint64_t>(1023 + extra)) << 52);
  return (1.0 + (r + r * r * tail)) * power;
}

inline double sinh(double x) {
  const double size = std::abs(x), inside = size < 711.0 ? size : 711.0, z = x * x;
  const double half = exp(inside, -2) * 2.0;
  const double near = x + x * z * polynomial(z, 0.16666666666666666, 0.008333333333333299, 0.00019841269841324198,
                                             2.7557319191381816e-06, 2.5052117695907823e-08, 1.6057679623801638e-10,
                                             7.746178593018827e-13);
  const double far = std::copysign(half - 0.25 / half, x);
  return size < 1 ? near : x == x ? far : x;
}
inline double cosh(double x) {
  const double size = std::abs(x), inside = size < 711.0 ? size : 711.0;
  const double half = exp(inside, -2) * 2.0;
  return x == x ? half + 0.25 / half : x;
}
inline double asinh(double x) {
  const double size = std::abs(x), inside = size < huge ? size : 1.0, square = inside * inside;
  return std::copysign(log_of_sum(inside + square / (1.0 + std::sqrt(1.0 + square)), size), x);
}
inline double acosh(double x) {
  const double above = x < huge ? x - 1.0 : 1.0;
  const double result = log_of_sum(above + std::sqrt(above * (above + 2.0)), x);
  return x < 1 ? nan : result;
}
inline double atanh(double x) {
  const double size = std::abs(x);
  return std::copysign(0.5 * log1p(2.0 * size / (1.0 - size)), x);
}

// Of a number, its negative reciprocal, or the tangent of the angle less pi / 4, whichever is at most tan(pi / 8).
inline double atan(double x) {
  const double size = std::abs(x);
  const bool is_steep = size > 2.41421356237309505, is_flat = size <= 0.41421356237309505;
  const double top = is_steep ? -1.0 : is_flat ? size : size - 1.0;
  const double bottom = is_steep ? size : is_flat ? 1.0 : size + 1.0;
  const double t = top / bottom, z = t * t;
  const double angle = t * z * polynomial(z, -0.3333333333333333, 0.19999999999995519, -0.14285714284666184,
                                          0.11111111015227572, -0.09090904576954117, 0.07692183163650894,
                                          -0.06664511064599371, 0.05858145587628202, -0.050854323376990765,
                                          0.0392311556198723, -0.01917627151752634);
  constexpr double rest = 6.123233995736766e-17;  // of pi / 2 as a float64
  const double base = is_steep ? pi / 2 : is_flat ? 0.0 : pi / 4, low = is_steep ? rest : is_flat ? 0.0 : rest / 2;
  return std::copysign(base + (t + (angle + low)), x);
}

// asin(t) - t for |t| <= 1/2, with z = t^2.
inline double asin_less_itself(double t, double z) {
  return t * z * polynomial(z, 0.1666666666666665, 0.07500000000020764, 0.044642857103423646, 0.03038194736709848, 0.02237204763174451,
                              0.017355259955786323, 0.013929652902326633, 0.011875494382636922, 0.0078029494773533175,
                              0.01603551434914882, -0.010749050339697808, 0.028169218060881414);
}
inline double asin(double x) {
  const double size = std::abs(x);
  const bool is_small = size <= 0.5;
  const double z = is_small ? x * x : 0.5 * (1.0 - size);
  const double t = is_small ? size : std::sqrt(z);
  const double angle = t + asin_less_itself(t, z);
  return std::copysign(is_small ? angle : pi / 2 - 2.0 * angle, x);
}
inline double acos(double x) {
  const double size = std::abs(x);
  const bool is_small = size <= 0.5;
  const double z = is_small ? x * x : 0.5 * (1.0 - size);
  const double t = is_small ? x : std::sqrt(z);
  const double angle = t + asin_less_itself(t, z);
  const double outside = x < 0 ? pi - 2.0 * angle : 2.0 * angle;
  return is_small ? pi / 2 - angle : outside;
}

constexpr double farthest = 8192.0;

// For |x| <= farthest: pi / 2 is subtracted in three parts, of which the first two have 33 bits.
inline double tan(double x) {
  constexpr double rounder = 6755399441055744.0;
  constexpr double first = 1.57079632673412561417, second = 6.07710050630396597660e-11, third = 2.02226624879595063154e-21;
  const double shifted = x * 0.63661977236758134308 + rounder;
  const double n = shifted - rounder;
  const double r = ((x - n * first) - n * second) - n * third, z = r * r;
  const double sine = r + r * z * polynomial(z, -0.16666666666666666, 0.008333333333333331, -0.0001984126984126506,
                                             2.755731921933466e-06, -2.505210623088241e-08, 1.6058531370931902e-10,
                                             -7.586682497157786e-13);
  const double cosine = 1.0 - (0.5 * z - z * z * polynomial(z, 0.041666666666666664, -0.0013888888888887395,
                                                            2.480158729876295e-05, -2.755731727031051e-07,
                                                            2.087614597263508e-09, -1.1382611119025631e-11));
  const bool is_odd = (bits_of(shifted) & 1) != 0;
  const double result = (is_odd ? -cosine : sine) / (is_odd ? sine : cosine);
  return x == 0 ? x : result;
}

// 1 - erfc(x) above 1, where (1 + 2 x) exp(x^2) erfc(x) is a polynomial of (x - 2) / (x + 2).
inline double erf(double x) {
  const double size = std::abs(x), far = size < 6.0 ? size : 6.0, z = x * x;
  const double near = x * polynomial(z, 1.1283791670955126, -0.37612638903183543, 0.11283791670945006,
                                     -0.02686617064323777, 0.0052239776071164225, -0.0008548325975389692,
                                     0.00012055294904839707, -1.492473690741966e-05, 1.6447424703317362e-06,
                                     -1.6208483801871705e-07, 1.3720064546777686e-08, -7.795898827002142e-10);
  const double inverse = 1.0 / ((far + 2.0) * (1.0 + 2.0 * far));
  const double t = (far - 2.0) * (1.0 + 2.0 * far) * inverse;
  const double scaled = polynomial(t, 1.2769783815525289, -0.09276382658574567, -0.16603039761538094, 0.1640512800334108, -0.054220000980438124,
                                    -0.008034015088992756, 0.008722653320714637, 0.0012713396464095273,
                                    -0.0014568013120680693, -0.00045436367347200164, 0.00020622298352353452,
                                    0.00015138939943308723, -7.732504942759844e-07, -3.896023943591018e-05,
                                    -1.4074763120545216e-05, 1.0923519568424604e-05);
  const double complement = scaled * ((far + 2.0) * inverse) * exp(-far * far, 0);
  const double result = size < 1 ? near : std::copysign(1.0 - complement, x);
  return x == x ? result : x;
}

template <class Function>
void run(opbridge::Call& call, const Function& function) {
  opbridge::elementwise(call, call.output<double>(0), function, call.input<double>(0));
}

}  // namespace float64_functions

#define FLOAT64_FUNCTION(name, schema)                                                                               \
  namespace float64_functions {                                                                                      \
  inline void run_##name(opbridge::Call& call) {                                                                     \
    run(call, [](double x) { return name(x); });                                                                     \
  }                                                                                                                  \
  }                                                                                                                  \
  OPBRIDGE_OPERATOR(float64_functions::run_##name, opbridge::shape_of_first, schema)

FLOAT64_FUNCTION(log2, "opbridge::Log2(float64 x) -> float64 y")
FLOAT64_FUNCTION(log10, "opbridge::Log10(float64 x) -> float64 y")
FLOAT64_FUNCTION(sinh, "opbridge::Sinh(float64 x) -> float64 y")
FLOAT64_FUNCTION(cosh, "opbridge::Cosh(float64 x) -> float64 y")
FLOAT64_FUNCTION(asinh, "opbridge::Asinh(float64 x) -> float64 y")
FLOAT64_FUNCTION(acosh, "opbridge::Acosh(float64 x) -> float64 y")
FLOAT64_FUNCTION(atanh, "opbridge::Atanh(float64 x) -> float64 y")
FLOAT64_FUNCTION(atan, "opbridge::Atan(float64 x) -> float64 y")
FLOAT64_FUNCTION(asin, "opbridge::Asin(float64 x) -> float64 y")
FLOAT64_FUNCTION(acos, "opbridge::Acos(float64 x) -> float64 y")
FLOAT64_FUNCTION(erf, "opbridge::Erf(float64 x) -> float64 y")

namespace float64_functions {

inline void run_tan(opbridge::Call& call) {
  const auto rows = [](double* out, int64_t count, const auto& pointers, const auto& strides) {
    const double* x = std::get<0>(pointers);
    static_cast<void>(strides);  // 1, or there is one element only
    constexpr int64_t block = 512;
    for (int64_t first = 0; first < count; first += block) {
      const int64_t last = std::min(count, first + block);
      uint64_t excesses = 0;  // Has its sign bit if one is too far, or no number.
      for (int64_t i = first; i < last; ++i) {
        out[i] = tan(x[i]);
        excesses |= bits_of(farthest) - (bits_of(x[i]) & (UINT64_MAX >> 1));
      }
      if (excesses >> 63 != 0)
        for (int64_t i = first; i < last; ++i)
          if (!(std::abs(x[i]) <= farthest)) out[i] = std::tan(x[i]);
    }
  };
  opbridge::elementwise_rows(call, call.output<double>(0), rows, call.input<double>(0));
}

}  // namespace float64_functions

OPBRIDGE_OPERATOR(float64_functions::run_tan, opbridge::shape_of_first, "opbridge::Tan(float64 x) -> float64 y")
