// Blocks of Householder reflections, I - V T V^T, with which matrices are multiplied (Golub & Van Loan, "Matrix
// Computations", 4th edition, 5.1.7 and 5.2.3; T as in LAPACK's larft).
#pragma once

#include "reflections.h"

namespace opbridge_linalg {

// Up to `width` reflections of vectors of a length, and scratch memory for products with `columns` columns.
template <class T>
struct ReflectionBlock {
  static constexpr int64_t width = 32;

  T *vectors;     // V^T: row j has the vector of the reflection j, with 1 at j and 0 before it.
  T *transposed;  // V
  T *triangle;    // T or T^T, which is upper or lower triangular
  T *products[2], *packed;

  static int64_t scratch_size(int64_t length, int64_t columns) {
    return 2 * width * length + width * width + 2 * width * columns + packed_size<T>(std::max(length, width), columns);
  }

  ReflectionBlock(T* scratch, int64_t length, int64_t columns)
      : vectors(scratch),
        transposed(vectors + width * length),
        triangle(transposed + width * length),
        products{triangle + width * width, triangle + width * width + width * columns},
        packed(products[1] + width * columns) {}

  // Computes what apply needs: Q = H(0) H(1) ... H(size - 1), or its transpose.
  template <class Loop>
  void prepare(const Loop& loop, const T* taus, int64_t size, int64_t length, bool transpose_q) {
    transpose(loop, static_cast<const T*>(vectors), transposed, size, length);
    std::fill_n(triangle, size * size, T(0));
    T column[width];
    for (int64_t j = 0; j < size; ++j) {
      for (int64_t i = 0; i < j; ++i) column[i] = dot(vectors + i * length + j, vectors + j * length + j, length - j);
      for (int64_t i = 0; i < j; ++i) {
        T sum = 0;
        for (int64_t k = i; k < j; ++k) sum += (transpose_q ? triangle[k * size + i] : triangle[i * size + k]) * column[k];
        triangle[transpose_q ? j * size + i : i * size + j] = -taus[j] * sum;
      }
      triangle[j * size + j] = taus[j];
    }
  }

  // Multiplies c, which has `length` rows, from the left by what was prepared: c -= V (T (V^T c)).
  template <class Loop>
  void apply(const Loop& loop, T* c, int64_t stride, int64_t size, int64_t length, int64_t columns) const {
    const auto all = [=](int64_t) { return columns; };
    const auto subtract = [&](T* out, int64_t out_stride, const T* left, int64_t rows, int64_t depth, const T* right,
                              int64_t right_stride) {
      pack(loop, packed, depth, columns, [=](int64_t row, int64_t column) { return right[row * right_stride + column]; });
      subtract_product(loop, out, out_stride, left, depth, static_cast<const T*>(packed), rows, columns, depth, all);
    };
    std::fill_n(products[0], 2 * width * columns, T(0));
    subtract(products[0], columns, vectors, size, length, c, stride);
    subtract(products[1], columns, triangle, size, size, products[0], columns);
    subtract(c, stride, transposed, length, size, products[1], columns);
  }
};

}  // namespace opbridge_linalg
