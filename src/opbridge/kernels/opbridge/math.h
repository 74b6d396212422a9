// Functions that loops over elements are vectorised with; those of <cmath> are called element by element.
#pragma once

#include <cmath>
#include <cstdint>

#include "opbridge/types.h"

namespace opbridge {

// exp(x) to within 2 units in the last place, subnormal results included; exp(inf) = inf, exp(NaN) = NaN.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series, whose first term left out is below 6e-9; 2^n by the bits of
// a float, in two steps because a float does not reach from 2^-149 to 2^128 in one.
inline float exp(float x) {
  constexpr float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  constexpr float rounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const float clamped = x > 89.0f ? 89.0f : x < -105.0f ? -105.0f : x;
  const float shifted = clamped * log2_e + rounder;
  const float n = shifted - rounder;
  const float r = clamped - n * ln2_high - n * ln2_low;
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const int32_t power = static_cast<int32_t>(detail::bits_of(shifted) - detail::bits_of(rounder));
  const int32_t half_power = power >> 1;
  const float first = detail::float_of((static_cast<uint32_t>(half_power) + 127u) << 23);
  const float second = detail::float_of((static_cast<uint32_t>(power) - static_cast<uint32_t>(half_power) + 127u) << 23);
  return sum * first * second;
}

inline double exp(double x) { return std::exp(x); }

// 1 / (1 + exp(-x))
template <class T>
T sigmoid(T x) {
  return 1 / (1 + exp(-x));
}

}  // namespace opbridge
