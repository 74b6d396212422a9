// The order of numbers in [0, 1): a radix sort of their first 24 bits, which are all that float32 has there at most.
#include <algorithm>
#include <utility>

#include "opbridge.h"

namespace order_of_uniform {

constexpr int digit_bits = 12, digits = 1 << digit_bits;

void run(opbridge::Call& call) {
  const auto x = call.input<float>(0);
  const auto order = call.output<int64_t>(0);
  const int64_t count = x.count();
  call.check(count <= UINT32_MAX, "more than 2^32 - 1 numbers");
  uint64_t* from = call.scratch<uint64_t>(count);  // 32 bits of the number, 32 bits of the place
  uint64_t* to = call.scratch<uint64_t>(count);
  int64_t* begins = call.scratch<int64_t>(2 * digits);
  std::fill_n(begins, 2 * digits, 0);
  for (int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<uint32_t>(std::clamp(x[i], 0.0f, 1 - 0x1p-24f) * 0x1p24f);
    from[i] = static_cast<uint64_t>(number) << 32 | static_cast<uint64_t>(i);
    ++begins[number % digits];
    ++begins[digits + number / digits];
  }
  for (int pass = 0; pass < 2; ++pass) {
    int64_t* begin = begins + pass * digits;
    int64_t sum = 0;
    for (int digit = 0; digit < digits; ++digit) sum += std::exchange(begin[digit], sum);
    const int shift = 32 + pass * digit_bits;
    for (int64_t i = 0; i < count; ++i) to[begin[(from[i] >> shift) % digits]++] = from[i];
    std::swap(from, to);
  }
  for (int64_t i = 0; i < count; ++i) order[i] = static_cast<uint32_t>(from[i]);
}

}  // namespace order_of_uniform

OPBRIDGE_OPERATOR(order_of_uniform::run, opbridge::shape_of_first,
                  "opbridge::OrderOfUniform(float32 numbers) -> int64 order")
