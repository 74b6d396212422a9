// The LU factorization with row interchanges, by blocks of columns (Golub & Van Loan, "Matrix Computations", 3.4.4).
#include <cmath>

#include "blocks.h"

namespace opbridge_linalg {

void lu_factor_shape(opbridge::ShapeCall& call) {
  const opbridge::SizeSpan sizes = call.sizes(0);
  call.check(sizes.size() >= 2, "expected matrices, got sizes ", sizes);
  call.set_output(0, sizes);
  opbridge::Sizes batch = batch_of(sizes);
  call.set_output(2, batch);
  batch.push_back(std::min(call.size(0, -1), call.size(0, -2)));
  call.set_output(1, batch);
}

// Eliminates `size` columns from `start` on below the diagonal. Returns the index of the first zero pivot, or 0.
template <class T>
int64_t eliminate_columns(T* a, int64_t m, int64_t n, int64_t start, int64_t size, int32_t* swaps) {
  int64_t failed = 0;
  for (int64_t j = start; j < start + size; ++j) {
    int64_t chosen = j;
    for (int64_t row = j + 1; row < m; ++row)
      if (std::abs(a[row * n + j]) > std::abs(a[chosen * n + j])) chosen = row;
    swaps[j] = static_cast<int32_t>(chosen + 1);
    if (chosen != j) std::swap_ranges(a + j * n, a + (j + 1) * n, a + chosen * n);
    const T* upper = a + j * n;
    const T pivot = upper[j];
    if (pivot == 0) {
      if (failed == 0) failed = j + 1;
      continue;
    }
    for (int64_t row = j + 1; row < m; ++row) {
      T* target = a + row * n;
      const T factor = target[j] / pivot;
      target[j] = factor;
      for (int64_t i = j + 1; i < start + size; ++i) target[i] -= factor * upper[i];
    }
  }
  return failed;
}

// Factors a in place. Returns the index of the first zero pivot, counted from 1, or 0.
template <class T, class Loop>
int64_t factor_lu(const Loop& loop, T* a, int64_t m, int64_t n, int32_t* swaps, T* scratch) {
  constexpr int64_t width = 32;
  const int64_t count = std::min(m, n);
  int64_t failed = 0;
  for (int64_t start = 0; start < count; start += width) {
    const int64_t size = std::min(width, count - start), next = start + size, rest = n - next;
    loop(1, 1, [&](int64_t, int64_t) {
      const int64_t bad = eliminate_columns(a, m, n, start, size, swaps);
      if (failed == 0) failed = bad;
    });
    if (rest == 0) break;
    T* right = a + start * n + next;
    solve_block(loop, static_cast<const T*>(a + start * n + start), n, right, n, size, rest, false, true);
    if (next >= m) break;
    pack(loop, scratch, size, rest, [=](int64_t row, int64_t column) { return right[row * n + column]; });
    subtract_product(loop, a + next * n + next, n, static_cast<const T*>(a + next * n + start), n,
                     static_cast<const T*>(scratch), m - next, rest, size, [=](int64_t) { return rest; });
  }
  return failed;
}

template <class T>
void lu_factor(Call& call) {
  const auto a = call.input<T>(0);
  const auto lu = call.output<T>(0);
  const auto swaps = call.output<int32_t>(1);
  const auto info = call.output<int32_t>(2);
  const int64_t m = a.size(-2), n = a.size(-1), area = m * n, count = std::min(m, n);
  for_each_matrix<T>(call, info.count(), packed_size<T>(32, n), [&](const auto& loop, int64_t number, T* scratch) {
    T* out = lu.data() + number * area;
    std::copy_n(a.data() + number * area, area, out);
    info[number] = static_cast<int32_t>(factor_lu(loop, out, m, n, swaps.data() + number * count, scratch));
  });
}

}  // namespace opbridge_linalg

OPBRIDGE_OPERATOR(opbridge_linalg::lu_factor, opbridge_linalg::lu_factor_shape,
                  "opbridge::LuFactor(T a) -> (T lu, int32 pivots, int32 info)", opbridge::types<float, double>)
