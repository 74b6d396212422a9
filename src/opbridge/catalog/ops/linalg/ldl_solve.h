// Solves systems of equations by a factorization L D L^T (LAPACK's sytrs).
#include <vector>

#include "blocks.h"

namespace opbridge_linalg {

void ldl_solve_shape(opbridge::ShapeCall& call) {
  const opbridge::SizeSpan factor = call.sizes(0), pivots = call.sizes(1), b = call.sizes(2);
  call.check(factor.size() >= 2 && b.size() >= 2 && call.size(0, -1) == call.size(0, -2),
             "expected square matrices, got sizes ", factor, " and ", b);
  call.check(call.size(0, -1) == call.size(2, -2), "sizes ", factor, " and ", b, " do not fit");
  bool is_like_factor = pivots.size() == factor.size() - 1;
  for (int64_t axis = 0; axis < pivots.size() && is_like_factor; ++axis) is_like_factor = pivots[axis] == factor[axis];
  call.check(is_like_factor, "sizes ", factor, " and pivots ", pivots, " do not fit");
  opbridge::Sizes sizes = opbridge::broadcast(batch_of(factor), batch_of(b));
  sizes.push_back(call.size(2, -2));
  sizes.push_back(call.size(2, -1));
  call.set_output(0, sizes);
}

// Some columns of the unknown, whose rows have the distance `stride`.
template <class T>
struct Columns {
  T* data;
  int64_t stride, count;

  T* row(int64_t number) const { return data + number * stride; }
  void subtract(int64_t target, T factor, int64_t source) const {
    add_multiple(row(target), -factor, row(source), count);
  }
  void interchange(int64_t one, int64_t other) const {
    if (one != other) std::swap_ranges(row(one), row(one) + count, row(other));
  }
};

// Solves L D y = x; row k of `lower` contains column k of L and D.
template <class T>
void solve_forward(const T* lower, const int32_t* pivots, int64_t n, const Columns<T>& x) {
  for (int64_t k = 0; k < n;) {
    const T* first = lower + k * n;
    if (pivots[k] > 0) {
      x.interchange(k, pivots[k] - 1);
      for (int64_t row = k + 1; row < n; ++row) x.subtract(row, first[row], k);
      for (int64_t i = 0; i < x.count; ++i) x.row(k)[i] /= first[k];
      ++k;
      continue;
    }
    const T* second = first + n;
    x.interchange(k + 1, -pivots[k] - 1);
    for (int64_t row = k + 2; row < n; ++row) {
      x.subtract(row, first[row], k);
      x.subtract(row, second[row], k + 1);
    }
    const T off_diagonal = first[k + 1];
    const T low = first[k] / off_diagonal, high = second[k + 1] / off_diagonal, both = low * high - 1;
    T* one = x.row(k);
    T* other = x.row(k + 1);
    for (int64_t i = 0; i < x.count; ++i) {
      const T left = one[i] / off_diagonal, right = other[i] / off_diagonal;
      one[i] = (high * left - right) / both;
      other[i] = (low * right - left) / both;
    }
    k += 2;
  }
}

// Solves L^T y = x.
template <class T>
void solve_backward(const T* lower, const int32_t* pivots, int64_t n, const Columns<T>& x) {
  for (int64_t k = n - 1; k >= 0;) {
    const int64_t first = pivots[k] > 0 ? k : k - 1;
    for (int64_t column = first; column <= k; ++column)
      for (int64_t row = k + 1; row < n; ++row) x.subtract(column, lower[column * n + row], row);
    x.interchange(k, std::abs(pivots[k]) - 1);
    k = first - 1;
  }
}

// Checks that pivots refer to existing rows, and that blocks of two have two rows.
inline void check_pivots(const Call& call, const int32_t* pivots, int64_t n) {
  for (int64_t k = 0; k < n; k += pivots[k] < 0 ? 2 : 1) {
    const int64_t pivot = pivots[k];
    call.check(pivot != 0 && pivot >= -n && pivot <= n, "a pivot is ", pivot, ", where there are ", n, " rows");
    call.check(pivot > 0 || (k + 1 < n && pivots[k + 1] == pivot), "the pivot ", pivot, " stands alone");
  }
}

template <class T>
void ldl_solve(Call& call) {
  const auto factor = call.input<T>(0);
  const auto pivots = call.input<int32_t>(1);
  const auto b = call.input<T>(2);
  const auto x = call.output<T>(0);
  const int64_t n = b.size(-2), columns = b.size(-1), area = n * columns;
  if (x.count() == 0) return;
  call.parallel_for(x.count() / area, 1, [&](int64_t begin, int64_t end) {
    std::vector<T> lower(n * n);
    for (int64_t k = begin; k < end; ++k) {
      const int64_t number = broadcast_number(k, x.sizes(), factor.sizes());
      const int32_t* rows = pivots.data() + number * n;
      check_pivots(call, rows, n);
      transpose(Serial(), factor.data() + number * n * n, lower.data(), n, n);
      T* out = x.data() + k * area;
      std::copy_n(b.data() + broadcast_number(k, x.sizes(), b.sizes()) * area, area, out);
      constexpr int64_t width = 64;
      for (int64_t start = 0; start < columns; start += width) {
        const Columns<T> part{out + start, columns, std::min(width, columns - start)};
        solve_forward(lower.data(), rows, n, part);
        solve_backward(lower.data(), rows, n, part);
      }
    }
  });
}

}  // namespace opbridge_linalg

OPBRIDGE_OPERATOR(opbridge_linalg::ldl_solve, opbridge_linalg::ldl_solve_shape,
                  "opbridge::LdlSolve(T factor, int32 pivots, T b) -> T x", opbridge::types<float, double>)
