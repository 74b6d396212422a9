// Mantissa and exponent, from the bits.
#include <cstdint>
#include <type_traits>

#include "opbridge.h"

namespace mantissa_exponent {

template <class Real>
struct Format;
template <>
struct Format<float> {
  using Bits = uint32_t;
  static constexpr int fraction = 23, lift = 24;
  static constexpr Bits largest = 255, half = 126;
  static constexpr float factor = 16777216.0f;  // 2^24
  static float of(Bits bits) { return opbridge::detail::float_of(bits); }
};
template <>
struct Format<double> {
  using Bits = uint64_t;
  static constexpr int fraction = 52, lift = 53;
  static constexpr Bits largest = 2047, half = 1022;
  static constexpr double factor = 9007199254740992.0;  // 2^53
  static double of(Bits bits) { return opbridge::detail::double_of(bits); }
};

template <class T>
void run(opbridge::Call& call) {
  using Real = opbridge::compute_t<T>;
  using F = Format<Real>;
  using Bits = typename F::Bits;
  const auto x = call.input<T>(0);
  const auto mantissas = call.output<T>(0);
  const auto exponents = call.output<int32_t>(1);
  call.parallel_for(x.count(), 16384, [&](int64_t begin, int64_t end) {
    const T* in = x.data();
    T* mantissa = mantissas.data();
    int32_t* exponent = exponents.data();
    for (int64_t i = begin; i < end; ++i) {
      const Real value = in[i];
      const Bits bits = opbridge::detail::bits_of(value);
      const Bits own = (bits >> F::fraction) & F::largest;
      const bool is_subnormal = own == 0;
      const Bits lifted = opbridge::detail::bits_of(value * F::factor);
      const Bits chosen = is_subnormal ? lifted : bits;
      const Bits power = (chosen >> F::fraction) & F::largest;
      const Bits fraction = (chosen & ~(F::largest << F::fraction)) | (F::half << F::fraction);
      const bool is_kept = (own == F::largest) | (value == 0);
      mantissa[i] = F::of(is_kept ? bits : fraction);
      const int32_t below = static_cast<int32_t>(F::half) + (is_subnormal ? F::lift : 0);
      exponent[i] = is_kept ? 0 : static_cast<int32_t>(power) - below;
    }
  });
}

}  // namespace mantissa_exponent

OPBRIDGE_OPERATOR(mantissa_exponent::run, opbridge::shape_of_first,
                  "opbridge::Frexp(T x) -> (T mantissa, int32 exponent)",
                  opbridge::types<float, double, opbridge::half>)
