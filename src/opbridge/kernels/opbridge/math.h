// Functions that the compiler can vectorize; those of <cmath> are called element by element.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "opbridge/types.h"

namespace opbridge {

// exp(x), within 2 units in the last place of the exact value (at most 1.67 over all floats, 1.87 if built with
// native=True), including subnormal results; exp(inf) = inf, exp(-inf) = 0, exp(NaN) = NaN.
//
// x = 2 n ln 2 + r with |r| <= ln 2; e^r is the minimax polynomial of degree 7 (relative error 1.5e-8), evaluated in
// independent pairs of terms; the factor 2^n is applied in two steps, since no float covers 2^-149 to 2^128. x is clamped
// to [-106, 90] by its bits, which order positive floats as integers and negative ones in reverse: this takes two
// instructions, while a comparison of floats would need separate code for both ends.
inline float exp(float x) {
  constexpr float half_log2_e = 0.72134752f, two_ln2_high = 1.38671875f, two_ln2_low = -4.24388939e-4f;
  constexpr float rounder = 12583039.0f;  // 1.5 * 2^23 rounds to a whole number; 127 makes the last bits an exponent
  constexpr int32_t largest = 0x42b40000;
  constexpr uint32_t lowest = 0xc2d40000u;
  const int32_t bits = static_cast<int32_t>(detail::bits_of(x));
  const uint32_t below = static_cast<uint32_t>(bits < largest ? bits : largest);
  const float inside = detail::float_of(below < lowest ? below : lowest);
  const float shifted = inside * half_log2_e + rounder;
  const float n = shifted - rounder;
  const float r = inside - n * two_ln2_high - n * two_ln2_low;
  const float r2 = r * r;
  const float first = 0.166666135f * r + 0.500000358f;
  const float second = 8.33610352e-3f * r + 4.166127e-2f;
  const float third = 1.96115987e-4f * r + 1.41044694e-3f;
  const float sum = 1.0f + (r + r2 * ((first + r2 * second) + r2 * r2 * third));
  const float power = detail::float_of(detail::bits_of(shifted) << 23);
  return x == x ? sum * power * power : x;
}

inline double exp(double x) { return std::exp(x); }

// log(x), within 0.89 units in the last place of the exact value, including subnormal x; log(0) = -inf, log(inf) = inf,
// log of a negative number or NaN = NaN.
//
// x = 2^n (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), which the bits of x give: 0x3f3504f3 are those of sqrt(1/2). log(1 + f)
// is f - f^2 / 2 + f^3 p(f), where p is the minimax polynomial of degree 8 (relative error of the logarithm 7.5e-10),
// evaluated in pairs of terms.
inline float log(float x) {
  constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const bool subnormal = x < std::numeric_limits<float>::min();
  const uint32_t bits = detail::bits_of(subnormal ? x * 8388608.0f : x);  // 2^23
  const int32_t exponent = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  const float f = detail::float_of(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  const float n = static_cast<float>(subnormal ? exponent - 23 : exponent);
  const float f2 = f * f;
  const float first = -0.25000009f * f + 0.33333313f;
  const float second = -0.16667996f * f + 0.20002119f;
  const float third = -0.12405589f * f + 0.14219552f;
  const float fourth = 0.067466386f * f2 + (-0.11675651f * f + 0.11888163f);
  const float p = (first + f2 * second) + (f2 * f2) * (third + f2 * fourth);
  const float finite = n * ln2_high + (f + (f2 * (f * p - 0.5f) + n * ln2_low));
  const float positive = x < infinity ? finite : x;
  return x > 0 ? positive : x == 0 ? -infinity : std::numeric_limits<float>::quiet_NaN();
}

inline double log(double x) { return std::log(x); }

// log(1 + x), within 1.5 units in the last place for float. The rounding error of 1 + x is made good to first order.
inline float log1p(float x) {
  const float sum = 1.0f + x;
  const float corrected = log(sum) + (x - (sum - 1.0f)) / sum;
  const float usual = x < std::numeric_limits<float>::infinity() && sum > 0 ? corrected : log(sum);
  return sum == 1.0f ? x : usual;
}

inline double log1p(double x) { return std::log1p(x); }

// 1 / (1 + exp(-x))
template <class T>
T sigmoid(T x) {
  return 1 / (1 + exp(-x));
}

}  // namespace opbridge
