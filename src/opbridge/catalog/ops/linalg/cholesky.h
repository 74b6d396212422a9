// The Cholesky factor of each matrix, by blocks of columns (Golub & Van Loan, "Matrix Computations", 4.2.6).
#include <cmath>

#include "blocks.h"

namespace opbridge_linalg {

void cholesky_shape(opbridge::ShapeCall& call) {
  check_square(call);
  const opbridge::SizeSpan sizes = call.sizes(0);
  call.set_output(0, sizes);
  call.set_output(1, batch_of(sizes));
}

constexpr int64_t block_width = 32;

// Factors a small block: reads the lower triangle of a, and writes the upper factor with contiguous rows. Returns the
// index of the first pivot that is not positive, counted from 1; 0 if all are positive.
template <class T>
int64_t factor_block(const T* a, int64_t stride, T* factor, int64_t size) {
  int64_t failed = 0;
  for (int64_t row = 0; row < size; ++row)
    for (int64_t column = 0; column <= row; ++column) factor[column * block_width + row] = a[row * stride + column];
  for (int64_t k = 0; k < size; ++k) {
    T* line = factor + k * block_width;
    if (!(line[k] > 0) && failed == 0) failed = k + 1;
    const T pivot = std::sqrt(line[k]);
    for (int64_t i = k; i < size; ++i) line[i] /= pivot;
    line[k] = pivot;
    for (int64_t row = k + 1; row < size; ++row) {
      T* target = factor + row * block_width;
      const T value = line[row];
      for (int64_t i = row; i < size; ++i) target[i] -= value * line[i];
    }
  }
  return failed;
}

// Solves x = x factor^-1 in place, for one row x.
template <class T>
void solve_row(T* x, const T* factor, int64_t size) {
  for (int64_t k = 0; k < size; ++k) {
    const T* line = factor + k * block_width;
    const T value = x[k] / line[k];
    x[k] = value;
    for (int64_t i = k + 1; i < size; ++i) x[i] -= value * line[i];
  }
}

// Factors a in place, reading and writing its lower triangle.
template <class T, class Loop>
int64_t factor_lower(const Loop& loop, T* a, int64_t n, T* scratch) {
  int64_t failed = 0;
  for (int64_t start = 0; start < n; start += block_width) {
    const int64_t size = std::min(block_width, n - start), next = start + size, rest = n - next;
    T* corner = a + start * n + start;
    T* below = a + next * n + start;
    T factor[block_width * block_width];
    loop(1, 1, [&](int64_t, int64_t) {
      const int64_t bad = factor_block(corner, n, factor, size);
      if (bad != 0 && failed == 0) failed = start + bad;
    });
    for (int64_t row = 0; row < size; ++row)
      for (int64_t column = 0; column <= row; ++column) corner[row * n + column] = factor[column * block_width + row];
    loop(rest, 1 + 10000 / (size * size), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) solve_row(below + row * n, factor, size);
    });
    pack(loop, scratch, size, rest, [=](int64_t row, int64_t column) { return below[column * n + row]; });
    subtract_product(loop, a + next * n + next, n, below, n, scratch, rest, rest, size,
                     [](int64_t row) { return row + 1; });
  }
  return failed;
}

template <class T>
void cholesky(Call& call) {
  const auto a = call.input<T>(0);
  const auto factor = call.output<T>(0);
  const auto info = call.output<int32_t>(1);
  const int64_t n = a.size(-1), area = n * n;
  const bool upper = call.attribute_int("upper") != 0;
  const int64_t packed = packed_size<T>(block_width, n), memory = packed + (upper ? area : 0);
  for_each_matrix<T>(call, info.count(), memory, [&](const auto& loop, int64_t number, T* scratch) {
    T* out = factor.data() + number * area;
    T* work = upper ? scratch + packed : out;
    if (upper) transpose(loop, a.data() + number * area, work, n, n);
    else std::copy_n(a.data() + number * area, area, work);
    info[number] = static_cast<int32_t>(factor_lower(loop, work, n, scratch));
    for (int64_t row = 0; row < n; ++row) std::fill(work + row * n + row + 1, work + (row + 1) * n, T(0));
    if (upper) transpose(loop, work, out, n, n);
  });
}

}  // namespace opbridge_linalg

OPBRIDGE_OPERATOR(opbridge_linalg::cholesky, opbridge_linalg::cholesky_shape,
                  "opbridge::Cholesky(T a, int upper) -> (T factor, int32 info)", opbridge::types<float, double>)
