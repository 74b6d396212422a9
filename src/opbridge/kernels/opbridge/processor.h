// One library for every processor: the bodies of parallel loops are compiled a second time with the wider instructions of
// nearly all x86-64 processors, and the processor is checked at run time. Fused multiply-add is not used: it rounds once
// instead of twice, so results would depend on the machine.
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
