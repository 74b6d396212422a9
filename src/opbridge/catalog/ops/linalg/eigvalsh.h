// The eigenvalues of symmetric matrices.
#include "symmetric.h"

namespace opbridge_linalg {

void eigvalsh_shape(opbridge::ShapeCall& call) {
  check_square(call);
  opbridge::Sizes values = batch_of(call.sizes(0));
  values.push_back(call.size(0, -1));
  call.set_output(0, values);
}

template <class T>
void eigvalsh(Call& call) {
  const auto a = call.input<T>(0);
  const auto values = call.output<T>(0);
  const int64_t n = a.size(-1);
  const bool upper = call.attribute_int("upper") != 0;
  if (a.count() == 0) return;
  call.parallel_for(a.count() / (n * n), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      symmetric_eigen<T>(a.data() + k * n * n, n, upper, values.data() + k * n, nullptr);
  });
}

}  // namespace opbridge_linalg

OPBRIDGE_OPERATOR(opbridge_linalg::eigvalsh, opbridge_linalg::eigvalsh_shape,
                  "opbridge::Eigvalsh(T a, int upper) -> T values", opbridge::types<float, double>)
