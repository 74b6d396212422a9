// The permutation, L and U of LU factorizations.
#include <numeric>

#include "blocks.h"

namespace opbridge_linalg {

void lu_unpack_shape(opbridge::ShapeCall& call) {
  const opbridge::SizeSpan sizes = call.sizes(0);
  call.check(sizes.size() >= 2, "expected matrices, got sizes ", sizes);
  const int64_t m = call.size(0, -2), n = call.size(0, -1);
  for (int output = 0; output < 3; ++output) {
    if (call.attribute_int(output == 0 ? "unpack_pivots" : "unpack_data") == 0) {
      call.set_output(output, {0});
      continue;
    }
    opbridge::Sizes result = batch_of(sizes);
    result.push_back(output == 2 ? std::min(m, n) : m);
    result.push_back(output == 0 ? m : output == 1 ? std::min(m, n) : n);
    call.set_output(output, result);
  }
}

template <class T>
void write_permutation(T* out, const int32_t* swaps, int64_t* order, int64_t m, int64_t count) {
  std::iota(order, order + m, int64_t(0));
  for (int64_t i = 0; i < count; ++i) std::swap(order[i], order[swaps[i] - 1]);
  std::fill_n(out, m * m, T(0));
  for (int64_t i = 0; i < m; ++i) out[order[i] * m + i] = T(1);
}

template <class T>
void lu_unpack(Call& call) {
  const auto lu = call.input<T>(0);
  const auto swaps = call.input<int32_t>(1);
  const auto permutation = call.output<T>(0);
  const auto lower = call.output<T>(1);
  const auto upper = call.output<T>(2);
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  const int64_t count = opbridge::element_count(batch_of(lu.sizes()));
  if (call.attribute_int("unpack_pivots") != 0) {
    call.check(swaps.size(-1) == k, "expected ", k, " pivots per matrix, got sizes ", swaps.sizes());
    for (int64_t pivot : swaps)
      call.check(pivot >= 1 && pivot <= m, "a pivot is ", pivot, ", where there are ", m, " rows");
    int64_t* order = call.scratch<int64_t>(m);
    for (int64_t number = 0; number < count; ++number)
      write_permutation(permutation.data() + number * m * m, swaps.data() + number * k, order, m, k);
  }
  if (call.attribute_int("unpack_data") == 0) return;
  call.parallel_for(count * m, 1 + 16384 / (1 + n), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const int64_t number = line / m, row = line % m;
      const T* in = lu.data() + line * n;
      T* left = lower.data() + line * k;
      for (int64_t i = 0; i < k; ++i) left[i] = i < row ? in[i] : i == row ? T(1) : T(0);
      if (row >= k) continue;
      T* right = upper.data() + (number * k + row) * n;
      for (int64_t i = 0; i < n; ++i) right[i] = i < row ? T(0) : in[i];
    }
  });
}

}  // namespace opbridge_linalg

OPBRIDGE_OPERATOR(opbridge_linalg::lu_unpack, opbridge_linalg::lu_unpack_shape,
                  "opbridge::LuUnpack(T lu, int32 pivots, int unpack_data, int unpack_pivots) -> (T p, T l, T u)",
                  opbridge::types<float, double>)
