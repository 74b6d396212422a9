// Applies Householder reflections to each matrix, by Eigen's blocked algorithm.
// opbridge: requires eigen
#include <Eigen/Householder>

#include "opbridge.h"

void ormqr_shape(opbridge::ShapeCall& call) {
  const int64_t place = call.attribute_int("left") ? -2 : -1;
  call.check(call.rank(2) >= 2 && call.size(0, -2) == call.size(2, place), "Q has ", call.size(0, -2),
             " rows, the other matrix ", call.sizes(2));
  call.set_output(0, call.sizes(2));
}

template <class T>
void ormqr(opbridge::Call& call) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
  using Rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;
  const auto vectors = call.input<T>(0);
  const auto taus = call.input<T>(1);
  const auto others = call.input<T>(2);
  const auto result = call.output<T>(0);
  const bool left = call.attribute_int("left") != 0, transpose = call.attribute_int("transpose") != 0;
  const int64_t m = vectors.size(-2), n = vectors.size(-1), steps = taus.size(-1);
  const int64_t rows = others.size(-2), columns = others.size(-1);
  if (others.count() == 0) return;
  call.parallel_for(others.count() / (rows * columns), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const Matrix reflections = Eigen::Map<const Rows>(vectors.data() + k * m * n, m, n).leftCols(steps);
      const Vector factors = Eigen::Map<const Vector>(taus.data() + k * steps, steps);
      Matrix product = Eigen::Map<const Rows>(others.data() + k * rows * columns, rows, columns);
      const auto q = Eigen::householderSequence(reflections, factors);
      if (left && transpose) product.applyOnTheLeft(q.transpose());
      if (left && !transpose) product.applyOnTheLeft(q);
      if (!left && transpose) product.applyOnTheRight(q.transpose());
      if (!left && !transpose) product.applyOnTheRight(q);
      Eigen::Map<Rows>(result.data() + k * rows * columns, rows, columns) = product;
    }
  });
}

OPBRIDGE_OPERATOR(ormqr, ormqr_shape, "opbridge::Ormqr(T vectors, T taus, T others, int left, int transpose) -> T product",
                  opbridge::types<float, double>)
