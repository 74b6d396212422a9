// The elementwise operators of ONNX on one element, under ONNX's names: what the kernels of elementwise chains consist of.
//
// Each function gives the result of ONNX Runtime's operator, also for infinities, NaN and negative zero. Integers wrap.
// Conditions are joined by & and |, which skip nothing, unlike && and ||, so that the compiler can vectorize loops.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "opbridge/math.h"

namespace opbridge {
namespace onnx {

namespace detail {

// Overflow of signed integers is undefined in C++, so they are computed as unsigned ones.
template <class T, bool = std::is_integral_v<T> && !std::is_same_v<T, bool>>
struct Wrapping {
  using type = T;
};
template <class T>
struct Wrapping<T, true> {
  using type = std::make_unsigned_t<T>;
};
template <class T>
using wrapping_t = typename Wrapping<T>::type;

}  // namespace detail

template <class T>
T Add(T a, T b) {
  return static_cast<T>(static_cast<detail::wrapping_t<T>>(a) + static_cast<detail::wrapping_t<T>>(b));
}
template <class T>
T Sub(T a, T b) {
  return static_cast<T>(static_cast<detail::wrapping_t<T>>(a) - static_cast<detail::wrapping_t<T>>(b));
}
template <class T>
T Mul(T a, T b) {
  return static_cast<T>(static_cast<detail::wrapping_t<T>>(a) * static_cast<detail::wrapping_t<T>>(b));
}
template <class T>
T Neg(T a) {
  if constexpr (std::is_floating_point_v<T>) return -a;
  return Sub(T(0), a);
}
template <class T>
T Abs(T a) {
  if constexpr (std::is_floating_point_v<T>) return std::abs(a);
  return a < T(0) ? Neg(a) : a;
}
template <class T>
T Div(T a, T b) {
  static_assert(std::is_floating_point_v<T>);
  return a / b;
}
template <class T>
T Mod(T a, T b) {
  return std::fmod(a, b);
}
template <class T>
T Pow(T a, T b) {
  return std::pow(a, b);
}
template <class T>
T Square(T a) {
  return a * a;
}
template <class T>
T Cube(T a) {
  return a * a * a;
}
template <class T>
T Exp2(T a) {
  return std::exp2(a);
}
// As on x86-64, only the lowest 5 bits of b count, or 6 for 64-bit integers.
template <class T>
T BitShift(T a, T b, bool to_right) {
  static_assert(std::is_unsigned_v<T>);
  const int places = static_cast<int>(b & (sizeof(T) < 8 ? 31 : 63));
  const uint64_t wide = a;
  return static_cast<T>(to_right ? wide >> places : wide << places);
}
template <class T>
T Reciprocal(T a) {
  return T(1) / a;
}

// NaN of either operand is kept; of equal operands, such as 0 and -0, the second.
template <class T>
T Max(T a, T b) {
  const T larger = a > b ? a : b;
  return a == a ? larger : a;
}
template <class T>
T Min(T a, T b) {
  const T smaller = a < b ? a : b;
  return a == a ? smaller : a;
}
template <class T>
T Clip(T a, T lowest, T highest) {
  return Min(Max(a, lowest), highest);
}
template <class T>
T Relu(T a) {
  return a < T(0) ? T(0) : a;
}
template <class T>
T LeakyRelu(T a, T alpha) {
  return a >= T(0) ? a : alpha * a;
}
template <class T>
T Sign(T a) {
  return a > T(0) ? T(1) : a < T(0) ? T(-1) : static_cast<T>(a + T(0));  // 0 for -0, and NaN for NaN
}

template <class T>
T Floor(T a) {
  return std::floor(a);
}
template <class T>
T Ceil(T a) {
  return std::ceil(a);
}
template <class T>
T Round(T a) {
  return std::nearbyint(a);
}
template <class T>
T Sqrt(T a) {
  return std::sqrt(a);
}
template <class T>
T Exp(T a) {
  return opbridge::exp(a);
}
template <class T>
T Log(T a) {
  return opbridge::log(a);
}
template <class T>
T Sigmoid(T a) {
  return opbridge::sigmoid(a);
}
template <class T>
T Softplus(T a) {
  return Max(a, T(0)) + opbridge::log1p(opbridge::exp(-std::abs(a)));
}
template <class T>
T Sin(T a) {
  return std::sin(a);
}
template <class T>
T Cos(T a) {
  return std::cos(a);
}
template <class T>
T Tan(T a) {
  return std::tan(a);
}
template <class T>
T Sinh(T a) {
  return std::sinh(a);
}
template <class T>
T Cosh(T a) {
  return std::cosh(a);
}
template <class T>
T Asinh(T a) {
  return std::asinh(a);
}
template <class T>
T Acosh(T a) {
  return std::acosh(a);
}
template <class T>
T Atanh(T a) {
  return std::atanh(a);
}

template <class T>
bool IsNaN(T a) {
  return a != a;
}
template <class T>
bool IsInf(T a) {
  return std::abs(a) == std::numeric_limits<T>::infinity();
}
template <class T>
bool Equal(T a, T b) {
  return a == b;
}
template <class T>
bool Less(T a, T b) {
  return a < b;
}
template <class T>
bool LessOrEqual(T a, T b) {
  return a <= b;
}
template <class T>
bool Greater(T a, T b) {
  return a > b;
}
template <class T>
bool GreaterOrEqual(T a, T b) {
  return a >= b;
}
inline bool And(bool a, bool b) { return a & b; }
inline bool Or(bool a, bool b) { return a | b; }
inline bool Xor(bool a, bool b) { return a != b; }
inline bool Not(bool a) { return !a; }
template <class T>
T BitwiseAnd(T a, T b) {
  return static_cast<T>(a & b);
}
template <class T>
T BitwiseOr(T a, T b) {
  return static_cast<T>(a | b);
}
template <class T>
T BitwiseXor(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <class T>
T BitwiseNot(T a) {
  return static_cast<T>(~a);
}
template <class T>
T Where(bool condition, T a, T b) {
  return condition ? a : b;
}
template <class T>
T Identity(T a) {
  return a;
}
template <class To, class T>
To Cast(T a) {
  if constexpr (std::is_same_v<T, bool>) return a ? To(1) : To(0);
  return static_cast<To>(a);
}

}  // namespace onnx
}  // namespace opbridge
