// The singular value decomposition.
#include "singular.h"

namespace opbridge_linalg {

void svd_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) >= 2, "expected matrices, got sizes ", call.sizes(0));
  const int64_t m = call.size(0, -2), n = call.size(0, -1), count = std::min(m, n);
  const bool is_full = call.attribute_int("full_matrices") != 0;
  opbridge::Sizes left = batch_of(call.sizes(0)), values = left, right = left;
  left.push_back(m);
  left.push_back(is_full ? m : count);
  values.push_back(count);
  right.push_back(is_full ? n : count);
  right.push_back(n);
  call.set_output(0, left);
  call.set_output(1, values);
  call.set_output(2, right);
}

template <class T>
void svd(Call& call) {
  const auto a = call.input<T>(0);
  const auto left = call.output<T>(0);
  const auto values = call.output<T>(1);
  const auto right = call.output<T>(2);
  const int64_t m = a.size(-2), n = a.size(-1), count = std::min(m, n);
  const int64_t kept = call.attribute_int("full_matrices") != 0 ? std::max(m, n) : count;
  const int64_t left_area = m * left.size(-1), right_area = n * right.size(-2);
  // Empty matrices also have singular vectors.
  call.parallel_for(opbridge::element_count(batch_of(a.sizes())), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      singular_values<true>(a.data() + k * m * n, m, n, kept, left.data() + k * left_area, values.data() + k * count,
                            right.data() + k * right_area);
  });
}

}  // namespace opbridge_linalg

// The kernel determines from the sizes whether a matrix is wide; is_wide is for the function body.
OPBRIDGE_OPERATOR(opbridge_linalg::svd, opbridge_linalg::svd_shape,
                  "opbridge::Svd(T a, int full_matrices, int is_wide) -> (T left, T values, T right)",
                  opbridge::types<float, double>)
