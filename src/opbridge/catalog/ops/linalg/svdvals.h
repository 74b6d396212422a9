// The singular values of matrices.
#include "singular.h"

namespace opbridge_linalg {

void svdvals_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) >= 2, "expected matrices, got sizes ", call.sizes(0));
  opbridge::Sizes values = batch_of(call.sizes(0));
  values.push_back(std::min(call.size(0, -2), call.size(0, -1)));
  call.set_output(0, values);
}

template <class T>
void svdvals(Call& call) {
  const auto a = call.input<T>(0);
  const auto values = call.output<T>(0);
  const int64_t m = a.size(-2), n = a.size(-1), count = std::min(m, n);
  if (a.count() == 0) return;
  call.parallel_for(a.count() / (m * n), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      singular_values<false, T>(a.data() + k * m * n, m, n, count, nullptr, values.data() + k * count, nullptr);
  });
}

}  // namespace opbridge_linalg

// The kernel determines from the sizes whether a matrix is wide; is_wide is for the function body.
OPBRIDGE_OPERATOR(opbridge_linalg::svdvals, opbridge_linalg::svdvals_shape,
                  "opbridge::Svdvals(T a, int is_wide) -> T values", opbridge::types<float, double>)
