// Orthogonal transformations of row-major matrices: Householder reflections and rotations of two rows (Golub & Van
// Loan, "Matrix Computations", 4th edition, 5.1).
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "blocks.h"

namespace opbridge_linalg {

// The power of two below the largest magnitude; 1 for zeros, NaN if an element is not finite. After a division by it,
// squares of the elements do not overflow, and those that underflow are negligible.
template <class T>
T scale_of(const T* a, int64_t count) {
  T largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<T>::quiet_NaN();
    largest = std::max(largest, std::abs(a[i]));
  }
  return largest > 0 ? std::ldexp(T(1), std::ilogb(largest)) : T(1);
}

// A reflection I - tau v v^T that maps a vector to (left, 0, 0, ...).
template <class T>
struct Reflection {
  T tau, left;
};

// The reflection of x, which is overwritten with v, where v[0] = 1. Signs are those of LAPACK's larfg.
template <class T>
Reflection<T> reflect(T* x, int64_t count) {
  const T head = x[0];
  T largest = 0;
  for (int64_t i = 1; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  x[0] = 1;
  if (largest == 0) return {T(0), head};
  const T scale = std::max(largest, std::abs(head)), first = head / scale;
  for (int64_t i = 1; i < count; ++i) x[i] /= scale;
  const T left = -std::copysign(std::sqrt(first * first + dot(x + 1, x + 1, count - 1)), first);
  for (int64_t i = 1; i < count; ++i) x[i] /= first - left;
  return {(left - first) / left, left * scale};
}

// Computes Q^T for Q = H(0) H(1) ... in place; row k has the vector of H(k) from column k on (LAPACK's orgl2).
template <class T>
void multiply_reflections(T* q, const T* taus, int64_t rows, int64_t columns) {
  for (int64_t k = rows - 1; k >= 0; --k) {
    T* v = q + k * columns + k;
    const int64_t size = columns - k;
    const T tau = taus[k];
    for (int64_t row = k + 1; row < rows; ++row) {
      T* line = q + row * columns + k;
      line[0] = 0;
      if (tau != 0) add_multiple(line, -tau * dot(line, v, size), v, size);
    }
    v[0] = 1 - tau;
    for (int64_t i = 1; i < size; ++i) v[i] = 0 - tau * v[i];
  }
}

// Maps (x, y) to (cosine x + sine y, cosine y - sine x). The nonnegative cosine is computed as 1 - sine ratio, so that
// small rotations have small errors and keep lengths (Rutishauser, "The Jacobi method for real symmetric matrices",
// Numer. Math. 9, 1966).
template <class T>
struct Rotation {
  T sine, ratio;

  void turn(T& x, T& y) const {
    const T before = x;
    x += sine * (y - ratio * x);
    y -= sine * (before + ratio * y);
  }
};

// The rotation that maps (x, y) to (length, 0).
template <class T>
Rotation<T> rotation_of(T x, T y, T& length) {
  if (y == 0) {
    length = x;
    return {T(0), T(0)};
  }
  const bool is_flat = std::abs(x) > std::abs(y);
  const T quotient = is_flat ? y / x : x / y;
  const T root = std::copysign(std::sqrt(1 + quotient * quotient), is_flat ? T(1) : quotient);
  const T sine = (is_flat ? quotient : T(1)) / root, cosine = (is_flat ? T(1) : quotient) / root;
  length = (is_flat ? x : y) * root;
  return {sine, sine / (1 + cosine)};
}

// Delayed rotations of a matrix's rows: once there are many, all of them are applied to a few columns at a time.
template <class T>
class Rotations {
 public:
  // Without a matrix, nothing is rotated.
  Rotations(T* matrix, int64_t rows, int64_t columns) : matrix_(matrix), rows_(rows), columns_(columns) {
    if (matrix == nullptr) return;
    waiting_.resize(std::min<int64_t>(8192, 32 * rows));
    tile_.resize(rows * width);
  }

  void add(Rotation<T> rotation, int64_t first, int64_t second) {
    if (matrix_ == nullptr) return;
    waiting_[count_++] = {rotation, first * width, second * width};
    if (count_ == waiting_.size()) apply();
  }

  // Applies the rotations that were added so far.
  void apply() {
    for (int64_t start = 0; start < columns_ && count_ > 0; start += width) {
      const int64_t size = std::min(width, columns_ - start);
      for (int64_t row = 0; row < rows_; ++row)
        std::copy_n(matrix_ + row * columns_ + start, size, tile_.data() + row * width);
      for (size_t k = 0; k < count_; ++k) {
        T* __restrict first = tile_.data() + waiting_[k].first;
        T* __restrict second = tile_.data() + waiting_[k].second;
        for (int64_t i = 0; i < width; ++i) waiting_[k].rotation.turn(first[i], second[i]);
      }
      for (int64_t row = 0; row < rows_; ++row)
        std::copy_n(tile_.data() + row * width, size, matrix_ + row * columns_ + start);
    }
    count_ = 0;
  }

 private:
  static constexpr int64_t width = 128 / sizeof(T);
  struct Waiting {
    Rotation<T> rotation;
    int64_t first, second;
  };

  T* matrix_;
  int64_t rows_, columns_;
  std::vector<Waiting> waiting_;
  size_t count_ = 0;
  std::vector<T> tile_;
};

// The indices of values in ascending order; insertion sort compiles fastest.
template <class T>
std::vector<int64_t> ascending(const std::vector<T>& values) {
  std::vector<int64_t> order(values.size());
  for (size_t k = 0; k < values.size(); ++k) {
    size_t place = k;
    for (; place > 0 && values[k] < values[order[place - 1]]; --place) order[place] = order[place - 1];
    order[place] = static_cast<int64_t>(k);
  }
  return order;
}

}  // namespace opbridge_linalg
