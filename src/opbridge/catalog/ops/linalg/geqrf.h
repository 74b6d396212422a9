// The Householder QR decomposition of each matrix, by Eigen's blocked algorithm.
// opbridge: requires eigen
#include <Eigen/QR>
#include <algorithm>
#include <cmath>

#include "opbridge.h"

void geqrf_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) >= 2, "expected matrices, got sizes ", call.sizes(0));
  opbridge::Sizes taus;
  for (int axis = 0; axis + 2 < call.rank(0); ++axis) taus.push_back(call.size(0, axis));
  taus.push_back(std::min(call.size(0, -1), call.size(0, -2)));
  call.set_output(0, call.sizes(0));
  call.set_output(1, taus);
}

template <class T>
void geqrf(opbridge::Call& call) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
  using Rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;
  const auto a = call.input<T>(0);
  const auto factors = call.output<T>(0);
  const auto taus = call.output<T>(1);
  const int64_t m = a.size(-2), n = a.size(-1), steps = std::min(m, n);
  if (a.count() == 0) return;
  call.parallel_for(a.count() / (m * n), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const Eigen::Map<const Rows> in(a.data() + k * m * n, m, n);
      const T largest = in.cwiseAbs().maxCoeff();
      // Squares of the elements must neither overflow nor underflow.
      const T scale = largest > 0 && std::isfinite(largest) ? std::exp2(std::floor(std::log2(largest))) : T(1);
      const Eigen::HouseholderQR<Matrix> qr(Matrix(in / scale));
      Eigen::Map<Rows> out(factors.data() + k * m * n, m, n);
      out = qr.matrixQR();
      out.template triangularView<Eigen::Upper>() = out * scale;
      Eigen::Map<Vector>(taus.data() + k * steps, steps) = qr.hCoeffs();
    }
  });
}

OPBRIDGE_OPERATOR(geqrf, geqrf_shape, "opbridge::Geqrf(T a) -> (T factors, T taus)", opbridge::types<float, double>)
