// The greatest common divisor and the least common multiple, by the binary algorithm (Stein, 1967).
#include <cstdint>

#include "opbridge.h"

namespace common_divisor {

inline int trailing_zeros(uint64_t bits) {
#if defined(__GNUC__)
  return __builtin_ctzll(bits);
#else
  int count = 0;
  for (; (bits & 1) == 0; bits >>= 1) ++count;
  return count;
#endif
}

template <class T>
uint64_t magnitude(T value) {
  const uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(value));
  return value < 0 ? 0 - bits : bits;
}

inline uint64_t divisor(uint64_t a, uint64_t b) {
  if (a == 0 || b == 0) return a | b;
  const int shared = trailing_zeros(a | b);
  a >>= trailing_zeros(a);
  b >>= trailing_zeros(b);
  while (a != b) {
    const uint64_t difference = a > b ? a - b : b - a;
    b = a < b ? a : b;
    a = difference >> trailing_zeros(difference);
  }
  return a << shared;
}

template <class T>
void gcd(opbridge::Call& call) {
  opbridge::elementwise(
      call, call.output<T>(0), [](T a, T b) { return static_cast<T>(divisor(magnitude(a), magnitude(b))); },
      call.input<T>(0), call.input<T>(1));
}

template <class T>
void lcm(opbridge::Call& call) {
  const auto multiple = [](T a, T b) {
    const uint64_t first = magnitude(a), second = magnitude(b), shared = divisor(first, second);
    if (shared == 0) return T(0);
    const bool is_small = (first | shared) <= UINT32_MAX;  // A division of 32 bits is faster.
    const uint64_t share = is_small ? static_cast<uint32_t>(first) / static_cast<uint32_t>(shared) : first / shared;
    return static_cast<T>(magnitude(static_cast<T>(share * second)));
  };
  opbridge::elementwise(call, call.output<T>(0), multiple, call.input<T>(0), call.input<T>(1));
}

}  // namespace common_divisor

OPBRIDGE_OPERATOR(common_divisor::gcd, opbridge::shape_of_broadcast, "opbridge::Gcd(T a, T b) -> T y",
                  opbridge::types<int64_t, int32_t, int16_t, int8_t, uint8_t>)
OPBRIDGE_OPERATOR(common_divisor::lcm, opbridge::shape_of_broadcast, "opbridge::Lcm(T a, T b) -> T y",
                  opbridge::types<int64_t, int32_t, int16_t, int8_t, uint8_t>)
