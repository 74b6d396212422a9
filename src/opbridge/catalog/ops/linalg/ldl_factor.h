// The factorization L D L^T of symmetric matrices with diagonal pivoting, in the form of LAPACK's sytf2 (Bunch and
// Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems", Math. Comp. 31, 1977).
#include <cmath>
#include <vector>

#include "blocks.h"

namespace opbridge_linalg {

void ldl_factor_shape(opbridge::ShapeCall& call) {
  check_square(call);
  const opbridge::SizeSpan sizes = call.sizes(0);
  opbridge::Sizes batch = batch_of(sizes);
  call.set_output(0, sizes);
  call.set_output(2, batch);
  batch.push_back(call.size(0, -1));
  call.set_output(1, batch);
}

// The pivot of the next step: the row to interchange, and the number of columns to eliminate; 0 if they are zeros.
struct Pivot {
  int64_t row, columns;
};

// The pivot of a symmetric matrix given by its upper triangle, from row k on.
template <class T>
Pivot choose_pivot(const T* a, int64_t n, int64_t k) {
  constexpr T growth = static_cast<T>(0.6403882032022076);  // (1 + sqrt(17)) / 8
  const T* line = a + k * n;
  int64_t largest = k;
  T size = 0;
  for (int64_t i = k + 1; i < n; ++i)
    if (std::abs(line[i]) > size) size = std::abs(line[largest = i]);
  const T own = std::abs(line[k]);
  if (std::isnan(own) || std::max(own, size) == 0) return {k, 0};
  if (own >= growth * size) return {k, 1};
  T row_size = 0;
  for (int64_t i = k; i < largest; ++i) row_size = std::max(row_size, std::abs(a[i * n + largest]));
  for (int64_t i = largest + 1; i < n; ++i) row_size = std::max(row_size, std::abs(a[largest * n + i]));
  if (own >= growth * size * (size / row_size)) return {k, 1};
  return {largest, std::abs(a[largest * n + largest]) >= growth * row_size ? 1 : 2};
}

// Interchanges rows and columns k and `other`, where `other` > k; the rows before `start` are finished.
template <class T>
void interchange(T* a, int64_t n, int64_t start, int64_t k, int64_t other) {
  for (int64_t i = start; i < k; ++i) std::swap(a[i * n + k], a[i * n + other]);
  for (int64_t i = k + 1; i < other; ++i) std::swap(a[k * n + i], a[i * n + other]);
  std::swap(a[k * n + k], a[other * n + other]);
  std::swap_ranges(a + k * n + other + 1, a + (k + 1) * n, a + other * n + other + 1);
}

template <class T>
void eliminate_one(T* a, int64_t n, int64_t k) {
  T* line = a + k * n;
  for (int64_t row = k + 1; row < n; ++row) {
    const T factor = line[row] / line[k];
    add_multiple(a + row * n + row, -factor, line + row, n - row);
    line[row] = factor;
  }
}

template <class T>
void eliminate_two(T* a, int64_t n, int64_t k) {
  T* first = a + k * n;
  T* second = first + n;
  const T off_diagonal = first[k + 1], high = second[k + 1] / off_diagonal, low = first[k] / off_diagonal;
  const T scale = 1 / (high * low - 1) / off_diagonal;
  for (int64_t row = k + 2; row < n; ++row) {
    const T left = scale * (high * first[row] - second[row]), right = scale * (low * second[row] - first[row]);
    add_multiple(a + row * n + row, -left, first + row, n - row);
    add_multiple(a + row * n + row, -right, second + row, n - row);
    first[row] = left;
    second[row] = right;
  }
}

// Factors a in place; reads its upper triangle, and writes the transpose of L and D to it. Returns the index of the
// first zero pivot, counted from 1, or 0.
template <class T>
int64_t factor_ldl(T* a, int64_t n, int32_t* pivots) {
  int64_t failed = 0;
  for (int64_t k = 0; k < n;) {
    const Pivot pivot = choose_pivot(a, n, k);
    if (pivot.columns == 0) {
      if (failed == 0) failed = k + 1;
      ++k;
      pivots[k - 1] = static_cast<int32_t>(k);
      continue;
    }
    const int64_t last = k + pivot.columns - 1;
    if (pivot.row != last) interchange(a, n, k, last, pivot.row);
    if (pivot.columns == 1) eliminate_one(a, n, k);
    else eliminate_two(a, n, k);
    // Both rows of a block of two have the same negative pivot.
    const int64_t number = pivot.columns == 1 ? pivot.row + 1 : -pivot.row - 1;
    std::fill(pivots + k, pivots + last + 1, static_cast<int32_t>(number));
    k = last + 1;
  }
  return failed;
}

template <class T>
void ldl_factor(Call& call) {
  const auto a = call.input<T>(0);
  const auto factor = call.output<T>(0);
  const auto pivots = call.output<int32_t>(1);
  const auto info = call.output<int32_t>(2);
  const int64_t n = a.size(-1), area = n * n;
  call.parallel_for(info.count(), 1, [&](int64_t begin, int64_t end) {
    std::vector<T> work(area);
    for (int64_t k = begin; k < end; ++k) {
      transpose(Serial(), a.data() + k * area, work.data(), n, n);
      info[k] = static_cast<int32_t>(factor_ldl(work.data(), n, pivots.data() + k * n));
      for (int64_t row = 0; row < n; ++row) std::fill_n(work.data() + row * n, row, T(0));
      transpose(Serial(), static_cast<const T*>(work.data()), factor.data() + k * area, n, n);
    }
  });
}

}  // namespace opbridge_linalg

OPBRIDGE_OPERATOR(opbridge_linalg::ldl_factor, opbridge_linalg::ldl_factor_shape,
                  "opbridge::LdlFactor(T a) -> (T factor, int32 pivots, int32 info)", opbridge::types<float, double>)
