// The eigenvalues and eigenvectors of symmetric matrices.
#include "symmetric.h"

namespace opbridge_linalg {

void eigh_shape(opbridge::ShapeCall& call) {
  check_square(call);
  opbridge::Sizes values = batch_of(call.sizes(0));
  values.push_back(call.size(0, -1));
  call.set_output(0, values);
  call.set_output(1, call.sizes(0));
}

template <class T>
void eigh(Call& call) {
  const auto a = call.input<T>(0);
  const auto values = call.output<T>(0);
  const auto vectors = call.output<T>(1);
  const int64_t n = a.size(-1);
  const bool upper = call.attribute_int("upper") != 0;
  if (a.count() == 0) return;
  call.parallel_for(a.count() / (n * n), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      symmetric_eigen(a.data() + k * n * n, n, upper, values.data() + k * n, vectors.data() + k * n * n);
  });
}

}  // namespace opbridge_linalg

OPBRIDGE_OPERATOR(opbridge_linalg::eigh, opbridge_linalg::eigh_shape,
                  "opbridge::Eigh(T a, int upper) -> (T values, T vectors)", opbridge::types<float, double>)
