// One library for every processor, loops for the one at hand: the bodies of parallel loops are compiled a second time with
// the wider instructions that nearly all x86-64 processors have, and the processor is asked when they run. Fused
// multiplication and addition is not among them: it rounds once instead of twice, and results would depend on the machine.
#pragma once

#include <cstdint>

namespace opbridge::detail {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX2__) && !defined(__SANITIZE_ADDRESS__)

inline bool has_wide_vectors() {
  static const bool result = __builtin_cpu_supports("avx2") != 0;
  return result;
}

template <class Body>
__attribute__((target("avx2"), flatten, noinline)) void run_wide(const Body& body, int64_t begin, int64_t end) {
  body(begin, end);
}

template <class Body>
__attribute__((noinline)) void run_narrow(const Body& body, int64_t begin, int64_t end) {
  body(begin, end);
}

template <class Body>
void run_body(const Body& body, int64_t begin, int64_t end) {
  if (has_wide_vectors()) run_wide(body, begin, end);
  else run_narrow(body, begin, end);
}

#else

template <class Body>
void run_body(const Body& body, int64_t begin, int64_t end) {
  body(begin, end);
}

#endif

}  // namespace opbridge::detail
