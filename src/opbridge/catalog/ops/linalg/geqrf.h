// The QR decomposition of each matrix into Householder reflections, by blocks of columns.
#include "householder.h"

namespace opbridge_linalg {

void geqrf_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) >= 2, "expected matrices, got sizes ", call.sizes(0));
  opbridge::Sizes taus = batch_of(call.sizes(0));
  taus.push_back(std::min(call.size(0, -1), call.size(0, -2)));
  call.set_output(0, call.sizes(0));
  call.set_output(1, taus);
}

// Factors `size` columns of `length` rows, and copies their vectors to the rows of `vectors`.
template <class T>
void factor_columns(T* a, int64_t stride, T* vectors, T* taus, int64_t size, int64_t length) {
  for (int64_t row = 0; row < length; ++row)
    for (int64_t j = 0; j < size; ++j) vectors[j * length + row] = a[row * stride + j];
  for (int64_t j = 0; j < size; ++j) {
    T* v = vectors + j * length;
    const Reflection<T> found = reflect(v + j, length - j);
    taus[j] = found.tau;
    for (int64_t other = j + 1; other < size; ++other) {
      T* x = vectors + other * length + j;
      add_multiple(x, -found.tau * dot(v + j, x, length - j), v + j, length - j);
    }
    for (int64_t row = 0; row < length; ++row) a[row * stride + j] = row == j ? found.left : v[row];
    std::fill_n(v, j, T(0));
  }
}

// Factors a in place.
template <class T, class Loop>
void factor_qr(const Loop& loop, T* a, T* taus, int64_t m, int64_t n, T* scratch) {
  using Block = ReflectionBlock<T>;
  for (int64_t start = 0; start < std::min(m, n); start += Block::width) {
    const int64_t size = std::min(Block::width, std::min(m, n) - start), length = m - start, rest = n - start - size;
    T* corner = a + start * n + start;
    Block block(scratch, length, rest);
    loop(1, 1, [&](int64_t, int64_t) { factor_columns(corner, n, block.vectors, taus + start, size, length); });
    if (rest == 0) return;
    block.prepare(loop, taus + start, size, length, true);
    block.apply(loop, corner + size, n, size, length, rest);
  }
}

template <class T>
void geqrf(Call& call) {
  const auto a = call.input<T>(0);
  const auto factors = call.output<T>(0);
  const auto taus = call.output<T>(1);
  const int64_t m = a.size(-2), n = a.size(-1), area = m * n;
  if (area == 0) return;
  const int64_t size = ReflectionBlock<T>::scratch_size(m, n);
  for_each_matrix<T>(call, a.count() / area, size, [&](const auto& loop, int64_t number, T* scratch) {
    T* out = factors.data() + number * area;
    std::copy_n(a.data() + number * area, area, out);
    factor_qr(loop, out, taus.data() + number * std::min(m, n), m, n, scratch);
  });
}

}  // namespace opbridge_linalg

OPBRIDGE_OPERATOR(opbridge_linalg::geqrf, opbridge_linalg::geqrf_shape, "opbridge::Geqrf(T a) -> (T factors, T taus)",
                  opbridge::types<float, double>)
