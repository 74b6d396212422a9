// The exception that kernels throw, with a text made of parts. It does not use std::string, which takes half a second to
// compile.
#pragma once

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>
#include <type_traits>

#include "opbridge/abi.h"

namespace opbridge {

// A range of elements that this object does not own.
template <class T>
class Span {
 public:
  Span() = default;
  Span(T* data, int64_t size) : data_(data), size_(size) {}

  T* data() const { return data_; }
  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](int64_t index) const { return data_[index]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

// The sizes of a tensor.
using SizeSpan = Span<const int64_t>;

// An error with a text: Error("expects ", 3, " channels, got sizes ", sizes). Parts are strings, numbers and sizes.
class Error : public std::exception {
 public:
  template <class... Part>
  explicit Error(const Part&... parts) {
    (add(parts), ...);
  }

  const char* what() const noexcept override { return text_; }

 private:
  // All kinds of strings and of sizes convert to these two types.
  void add(std::string_view part) {
    const size_t room = sizeof text_ - 1 - used_;
    const size_t size = part.size() < room ? part.size() : room;
    std::memcpy(text_ + used_, part.data(), size);
    used_ += size;
    text_[used_] = '\0';
  }
  void add(SizeSpan sizes) {
    add(std::string_view("("));
    for (int64_t axis = 0; axis < sizes.size(); ++axis) {
      if (axis > 0) add(std::string_view(", "));
      add(sizes[axis]);
    }
    add(std::string_view(sizes.size() == 1 ? ",)" : ")"));
  }
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  void add(Number number) {
    char digits[32];
    if constexpr (std::is_floating_point_v<Number>) std::snprintf(digits, sizeof digits, "%g", static_cast<double>(number));
    else std::snprintf(digits, sizeof digits, "%" PRId64, static_cast<int64_t>(number));
    add(std::string_view(digits));
  }

  char text_[OPBRIDGE_ERROR_SIZE] = "";
  size_t used_ = 0;
};

}  // namespace opbridge
