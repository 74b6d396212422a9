// Functions that loops over elements are vectorised with; those of <cmath> are called element by element.
#pragma once

#include <cmath>
#include <cstdint>

#include "opbridge/types.h"

namespace opbridge {

// exp(x), at most 2 units in the last place from the exact value (over all floats 1.67 is the most, and 1.87 when built with
// native=True), subnormal results included; exp(inf) = inf, exp(-inf) = 0, exp(NaN) = NaN.
//
// x = 2 n ln 2 + r with |r| <= ln 2; e^r by the polynomial of degree 7 whose relative error there is smallest (1.5e-8),
// evaluated in pairs of terms that do not wait for each other; times 2^n twice, since a float does not reach from 2^-149 to
// 2^128. x is brought into [-106, 90] by its bits, which order positive floats as integers and negative ones in reverse: two
// instructions, where comparing floats makes the compiler work out both ends apart.
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

// 1 / (1 + exp(-x))
template <class T>
T sigmoid(T x) {
  return 1 / (1 + exp(-x));
}

}  // namespace opbridge
