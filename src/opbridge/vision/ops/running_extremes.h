// The largest or smallest element so far, and where it is.
#include "opbridge.h"

namespace opbridge_vision {

inline void running_extremes_shape(opbridge::ShapeCall& call) {
  const int64_t dim = call.attribute_int("dim");
  call.check(call.rank(0) > 0 && dim >= -call.rank(0) && dim < call.rank(0), "axis ", dim, " of sizes ", call.sizes(0));
  for (int i = 0; i < 2; ++i) call.set_output(i, call.sizes(0));
}

template <class T>
void running_extremes(opbridge::Call& call) {
  const auto input = call.input<T>(0);
  const auto values = call.output<T>(0);
  const auto places = call.output<int64_t>(1);
  const bool largest = call.attribute_int("largest") != 0;
  const int64_t dim = call.attribute_int("dim"), axis = dim < 0 ? dim + input.rank() : dim;
  const int64_t length = input.size(static_cast<int>(axis));
  if (input.count() == 0) return;
  int64_t inner = 1;
  for (int64_t k = axis + 1; k < input.rank(); ++k) inner *= input.size(static_cast<int>(k));
  call.parallel_for(input.count() / length, 16384 / length + 1, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const int64_t first = line / inner * length * inner + line % inner;
      int64_t best = 0;
      for (int64_t at = 0; at < length; ++at) {
        const T value = input[first + at * inner], so_far = input[first + best * inner];
        // Of equal elements the latest, as in PyTorch, and NaN is the extreme of what follows.
        if (value != value || (largest ? value >= so_far : value <= so_far)) best = at;
        values[first + at * inner] = input[first + best * inner];
        places[first + at * inner] = best;
      }
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::running_extremes, opbridge_vision::running_extremes_shape,
                  "opbridge_vision::running_extremes(T input, int dim, int largest) -> (T values, int64 places)",
                  opbridge::types<float, double>)
