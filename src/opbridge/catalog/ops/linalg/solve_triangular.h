// Solves systems of equations with triangular matrices, by blocks of rows.
#include "blocks.h"

namespace opbridge_linalg {

void solve_triangular_shape(opbridge::ShapeCall& call) {
  const opbridge::SizeSpan a = call.sizes(0), b = call.sizes(1);
  call.check(a.size() >= 2 && b.size() >= 2 && call.size(0, -1) == call.size(0, -2),
             "expected square matrices, got sizes ", a, " and ", b);
  const int side = call.attribute_int("left") != 0 ? -2 : -1;
  call.check(call.size(0, -1) == call.size(1, side), "sizes ", a, " and ", b, " do not fit");
  opbridge::Sizes sizes = opbridge::broadcast(batch_of(a), batch_of(b));
  sizes.push_back(call.size(1, -2));
  sizes.push_back(call.size(1, -1));
  call.set_output(0, sizes);
}

// Solves a x = b, and overwrites b with x.
template <class T, class Loop>
void solve_left(const Loop& loop, const T* a, T* x, int64_t n, int64_t columns, bool upper, bool unit, T* scratch) {
  constexpr int64_t width = 48;
  for (int64_t step = 0; step < n; step += width) {
    const int64_t size = std::min(width, n - step), start = upper ? n - step - size : step;
    T* block = x + start * columns;
    solve_block(loop, a + start * n + start, n, block, columns, size, columns, upper, unit);
    const int64_t rest = n - step - size, first = upper ? 0 : start + size;
    if (rest == 0) return;
    pack(loop, scratch, size, columns, [=](int64_t row, int64_t column) { return block[row * columns + column]; });
    subtract_product(loop, x + first * columns, columns, a + first * n + start, n, scratch, rest, columns, size,
                     [=](int64_t) { return columns; });
  }
}

template <class T>
void solve_triangular(Call& call) {
  const auto a = call.input<T>(0);
  const auto b = call.input<T>(1);
  const auto x = call.output<T>(0);
  const int64_t n = a.size(-1), area = b.size(-1) * b.size(-2);
  if (x.count() == 0) return;
  const bool upper = call.attribute_int("upper") != 0, left = call.attribute_int("left") != 0;
  const bool unit = call.attribute_int("unitriangular") != 0;
  const int64_t columns = area / n, packed = packed_size<T>(48, columns);
  const int64_t memory = packed + (left ? 0 : n * n + area);
  for_each_matrix<T>(call, x.count() / area, memory, [&](const auto& loop, int64_t number, T* scratch) {
    const T* matrix = a.data() + broadcast_number(number, x.sizes(), a.sizes()) * n * n;
    const T* right = b.data() + broadcast_number(number, x.sizes(), b.sizes()) * area;
    T* out = x.data() + number * area;
    if (left) {
      std::copy_n(right, area, out);
      return solve_left(loop, matrix, out, n, columns, upper, unit, scratch);
    }
    // x a = b is the transpose of a system with a on the left.
    T* turned = scratch + packed;
    T* solved = turned + n * n;
    transpose(loop, matrix, turned, n, n);
    transpose(loop, right, solved, columns, n);
    solve_left(loop, static_cast<const T*>(turned), solved, n, columns, !upper, unit, scratch);
    transpose(loop, static_cast<const T*>(solved), out, n, columns);
  });
}

}  // namespace opbridge_linalg

OPBRIDGE_OPERATOR(opbridge_linalg::solve_triangular, opbridge_linalg::solve_triangular_shape,
                  "opbridge::SolveTriangular(T a, T b, int upper, int left, int unitriangular) -> T x",
                  opbridge::types<float, double>)
