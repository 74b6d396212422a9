// The sizes in the layouts of kernels that are written in Python. Generated sources include this header.
#pragma once

#include <algorithm>
#include <cstdint>

#include "opbridge/call.h"

// The prefix that the system's C compilers add to function names.
#if defined(__APPLE__)
#define OPBRIDGE_SYMBOL_PREFIX "_"
#else
#define OPBRIDGE_SYMBOL_PREFIX ""
#endif

namespace opbridge {

// Division as in Python: towards minus infinity.
inline int64_t floor_divided(int64_t a, int64_t b) {
  if (b == 0) throw Error("a size is divided by zero");
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}
inline int64_t floor_remainder(int64_t a, int64_t b) { return a - floor_divided(a, b) * b; }

inline bool has_avx2() {
#if defined(__x86_64__)
  static const bool result = __builtin_cpu_supports("avx2") != 0;
  return result;
#else
  return false;
#endif
}

// A named size. The first tensor that has it sets it, and the others must agree.
class NamedSize {
 public:
  explicit NamedSize(const char* name) : name_(name) {}
  NamedSize(const char* name, int64_t value) : name_(name), from_("the attribute"), value_(value) {}
  operator int64_t() const { return value_; }
  void agree(int64_t size, const char* tensor) {
    if (from_ == nullptr) {
      from_ = tensor;
      value_ = size;
    } else if (size != value_) {
      throw Error(name_, " is ", value_, " in ", from_, ", but ", size, " in ", tensor);
    }
  }

 private:
  const char* name_;
  const char* from_ = nullptr;
  int64_t value_ = -1;
};

// The leading axes, which are merged into one.
class LeadingSizes {
 public:
  // All sizes except the last `others`.
  void agree(SizeSpan sizes, int others, const char* tensor) {
    const SizeSpan own(sizes.begin(), sizes.size() - others);
    if (from_ == nullptr) {
      from_ = tensor;
      sizes_ = own;
    } else if (!std::equal(own.begin(), own.end(), sizes_.begin(), sizes_.end())) {
      throw Error("the leading sizes are ", SizeSpan(sizes_), " in ", from_, ", but ", own, " in ", tensor);
    }
  }
  int64_t count() const { return element_count(sizes_); }
  // The sizes of an output.
  Sizes with(std::initializer_list<int64_t> others, const char* tensor) const {
    Sizes result(sizes_);
    for (int64_t size : others) {
      if (size < 0) throw Error("a size of ", tensor, " would be ", size);
      result.push_back(size);
    }
    return result;
  }

 private:
  const char* from_ = nullptr;
  Sizes sizes_;
};

inline void check_rank(const Arguments& call, int index, int rank, bool leading, const char* tensor) {
  if (leading) call.check(call.rank(index) >= rank, "expected ", tensor, ", got sizes ", call.sizes(index));
  else call.check(call.rank(index) == rank, "expected ", tensor, ", got sizes ", call.sizes(index));
}

// The number of steps in which a piece writes about as much as a piece of elementwise().
inline int64_t grain_of(int64_t elements, int64_t steps) {
  if (steps <= 0 || elements <= steps) return detail::elements_per_task;
  return std::max<int64_t>(1, detail::elements_per_task / (elements / steps));
}

}  // namespace opbridge
