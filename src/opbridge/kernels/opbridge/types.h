// Element types: half and bfloat16 in software, and the type in which each is computed.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "opbridge/abi.h"

namespace opbridge {

inline constexpr int64_t data_dependent = OPBRIDGE_DATA_DEPENDENT;

namespace detail {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline double double_of(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// All three cases are computed and one is selected, so that loops over halves are vectorized. No operand is a subnormal
// float, since a host may have set the processor to flush those to zero.
inline float float_of_half(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t shifted = magnitude << 13;
  const uint32_t normal = shifted + (112u << 23);
  const uint32_t special = shifted + (224u << 23);  // infinity, NaN
  const uint32_t subnormal = bits_of(float_of(shifted + (113u << 23)) - float_of(113u << 23));
  const uint32_t chosen = magnitude < 0x0400u ? subnormal : magnitude < 0x7c00u ? normal : special;
  return float_of(chosen | (static_cast<uint32_t>(half & 0x8000u) << 16));
}

// Rounds to nearest, ties to even.
inline uint16_t half_of_float(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  // The unit in the last place of 0.5f is the smallest half: the addition rounds.
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t chosen = magnitude < (113u << 23) ? subnormal : magnitude < (143u << 23) ? normal : special;
  return static_cast<uint16_t>(chosen | ((bits >> 16) & 0x8000u));
}

inline float float_of_bfloat16(uint16_t value) { return float_of(static_cast<uint32_t>(value) << 16); }

// Rounds to nearest, ties to even.
inline uint16_t bfloat16_of_float(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x0040u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

}  // namespace detail

// A 16-bit storage type. It converts to float implicitly, so arithmetic on it is float arithmetic, and any number can be
// assigned to it; construction from a number is explicit: half(0.5f).
struct half {
  uint16_t bits;

  half() = default;
  explicit half(float value) : bits(detail::half_of_float(value)) {}
  half& operator=(float value) {
    bits = detail::half_of_float(value);
    return *this;
  }
  operator float() const { return detail::float_of_half(bits); }
  static half from_bits(uint16_t bits) {
    half result;
    result.bits = bits;
    return result;
  }
};

struct bfloat16 {
  uint16_t bits;

  bfloat16() = default;
  explicit bfloat16(float value) : bits(detail::bfloat16_of_float(value)) {}
  bfloat16& operator=(float value) {
    bits = detail::bfloat16_of_float(value);
    return *this;
  }
  operator float() const { return detail::float_of_bfloat16(bits); }
  static bfloat16 from_bits(uint16_t bits) {
    bfloat16 result;
    result.bits = bits;
    return result;
  }
};

static_assert(sizeof(half) == 2 && sizeof(bfloat16) == 2 && sizeof(bool) == 1, "elements have ONNX's sizes");

// The type to compute and accumulate in: float for half and bfloat16, otherwise the type itself.
template <class T>
struct compute {
  using type = T;
};
template <>
struct compute<half> {
  using type = float;
};
template <>
struct compute<bfloat16> {
  using type = float;
};
template <class T>
using compute_t = typename compute<std::remove_const_t<T>>::type;

namespace detail {

template <class T>
constexpr int32_t no_dtype() {
  static_assert(!sizeof(T),
                "opbridge: tensors have no such element type; use float, double, opbridge::half, opbridge::bfloat16, bool, "
                "int8_t to int64_t or uint8_t to uint64_t");
  return 0;
}

}  // namespace detail

// The number of an element type, such as OPBRIDGE_FLOAT32.
template <class T>
constexpr int32_t dtype_of() {
  if constexpr (std::is_same_v<T, float>) return OPBRIDGE_FLOAT32;
  else if constexpr (std::is_same_v<T, double>) return OPBRIDGE_FLOAT64;
  else if constexpr (std::is_same_v<T, half>) return OPBRIDGE_FLOAT16;
  else if constexpr (std::is_same_v<T, bfloat16>) return OPBRIDGE_BFLOAT16;
  else if constexpr (std::is_same_v<T, bool>) return OPBRIDGE_BOOL;
  else if constexpr (std::is_same_v<T, int8_t>) return OPBRIDGE_INT8;
  else if constexpr (std::is_same_v<T, int16_t>) return OPBRIDGE_INT16;
  else if constexpr (std::is_same_v<T, int32_t>) return OPBRIDGE_INT32;
  else if constexpr (std::is_same_v<T, int64_t>) return OPBRIDGE_INT64;
  else if constexpr (std::is_same_v<T, uint8_t>) return OPBRIDGE_UINT8;
  else if constexpr (std::is_same_v<T, uint16_t>) return OPBRIDGE_UINT16;
  else if constexpr (std::is_same_v<T, uint32_t>) return OPBRIDGE_UINT32;
  else if constexpr (std::is_same_v<T, uint64_t>) return OPBRIDGE_UINT64;
  else return detail::no_dtype<T>();
}

}  // namespace opbridge

// Without these, max() and lowest() of a half would silently be zero.
template <>
struct std::numeric_limits<opbridge::half> {
  static constexpr bool is_specialized = true;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr int digits = 11;
  static opbridge::half min() { return opbridge::half::from_bits(0x0400); }
  static opbridge::half max() { return opbridge::half::from_bits(0x7bff); }
  static opbridge::half lowest() { return opbridge::half::from_bits(0xfbff); }
  static opbridge::half epsilon() { return opbridge::half::from_bits(0x1400); }
  static opbridge::half infinity() { return opbridge::half::from_bits(0x7c00); }
  static opbridge::half quiet_NaN() { return opbridge::half::from_bits(0x7e00); }
};

template <>
struct std::numeric_limits<opbridge::bfloat16> {
  static constexpr bool is_specialized = true;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr int digits = 8;
  static opbridge::bfloat16 min() { return opbridge::bfloat16::from_bits(0x0080); }
  static opbridge::bfloat16 max() { return opbridge::bfloat16::from_bits(0x7f7f); }
  static opbridge::bfloat16 lowest() { return opbridge::bfloat16::from_bits(0xff7f); }
  static opbridge::bfloat16 epsilon() { return opbridge::bfloat16::from_bits(0x3c00); }
  static opbridge::bfloat16 infinity() { return opbridge::bfloat16::from_bits(0x7f80); }
  static opbridge::bfloat16 quiet_NaN() { return opbridge::bfloat16::from_bits(0x7fc0); }
};
