// Products of matrices and the Q of a QR decomposition, by blocks of reflections.
#include "householder.h"

namespace opbridge_linalg {

void ormqr_shape(opbridge::ShapeCall& call) {
  const int64_t place = call.attribute_int("left") ? -2 : -1;
  call.check(call.rank(2) >= 2 && call.size(0, -2) == call.size(2, place), "Q has ", call.size(0, -2),
             " rows, the other matrix ", call.sizes(2));
  call.set_output(0, call.sizes(2));
}

// Multiplies c, which has m rows, by Q or its transpose from the left; the vectors of Q are below the diagonal of a.
template <class T, class Loop>
void multiply_by_q(const Loop& loop, const T* a, int64_t m, int64_t n, const T* taus, int64_t steps, bool transpose_q,
                   T* c, int64_t columns, T* scratch) {
  using Block = ReflectionBlock<T>;
  const int64_t count = rounded_up(steps, Block::width) / Block::width;
  for (int64_t number = 0; number < count; ++number) {
    // Q^T begins with the first reflections, and Q with the last ones.
    const int64_t start = (transpose_q ? number : count - 1 - number) * Block::width;
    const int64_t size = std::min(Block::width, steps - start), length = m - start;
    Block block(scratch, length, columns);
    for (int64_t row = 0; row < length; ++row)
      for (int64_t j = 0; j < size; ++j)
        block.vectors[j * length + row] = row < j ? T(0) : row == j ? T(1) : a[(start + row) * n + start + j];
    block.prepare(loop, taus + start, size, length, transpose_q);
    block.apply(loop, c + start * columns, columns, size, length, columns);
  }
}

template <class T>
void ormqr(Call& call) {
  const auto vectors = call.input<T>(0);
  const auto taus = call.input<T>(1);
  const auto others = call.input<T>(2);
  const auto result = call.output<T>(0);
  const bool left = call.attribute_int("left") != 0, transpose_q = call.attribute_int("transpose") != 0;
  const int64_t m = vectors.size(-2), n = vectors.size(-1), steps = taus.size(-1);
  const int64_t rows = others.size(-2), columns = others.size(-1), area = rows * columns, count = left ? columns : rows;
  if (area == 0) return;
  const int64_t size = ReflectionBlock<T>::scratch_size(m, count) + (left ? 0 : area);
  for_each_matrix<T>(call, others.count() / area, size, [&](const auto& loop, int64_t number, T* scratch) {
    const T* in = others.data() + number * area;
    T* out = result.data() + number * area;
    T* c = left ? out : scratch;
    if (left) std::copy_n(in, area, out);
    else transpose(loop, in, c, rows, columns);
    // X Q is the transpose of Q^T X^T.
    multiply_by_q(loop, vectors.data() + number * m * n, m, n, taus.data() + number * steps, steps,
                  left == transpose_q, c, count, left ? scratch : scratch + area);
    if (!left) transpose(loop, static_cast<const T*>(c), out, columns, rows);
  });
}

}  // namespace opbridge_linalg

OPBRIDGE_OPERATOR(opbridge_linalg::ormqr, opbridge_linalg::ormqr_shape,
                  "opbridge::Ormqr(T vectors, T taus, T others, int left, int transpose) -> T product",
                  opbridge::types<float, double>)
