// Features between points (PointNet++, arXiv:1706.02413).
#include "opbridge.h"

namespace opbridge_vision {

inline void three_interpolate_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 3, "features must have sizes (batch, channels, points), not ", call.sizes(0));
  call.check(call.rank(1) == 3 && call.size(1, 0) == call.size(0, 0), "positions must have sizes (", call.size(0, 0),
             ", sums, points), not ", call.sizes(1));
  bool same = call.rank(2) == 3;
  for (int axis = 0; same && axis < 3; ++axis) same = call.size(2, axis) == call.size(1, axis);
  call.check(same, "weights must have sizes ", call.sizes(1), ", not ", call.sizes(2));
  call.set_output(0, {call.size(0, 0), call.size(0, 1), call.size(1, 1)});
}

template <class T>
void three_interpolate(opbridge::Call& call) {
  const auto features = call.input<T>(0), weights = call.input<T>(2);
  const auto positions = call.input<int64_t>(1);
  const auto output = call.output<T>(0);
  const int64_t channels = features.size(1), points = features.size(2), sums = positions.size(1), near = positions.size(2);
  if (output.count() == 0) return;
  for (int64_t position : positions)
    call.check(position >= 0 && position < points, "position ", position, " of ", points, " points");
  call.parallel_for(features.size(0) * channels, 8192 / (sums * near + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const T* given = &features[line * points];
      const int64_t first = line / channels * sums * near;
      for (int64_t i = 0; i < sums; ++i) {
        T sum = 0;
        for (int64_t k = first + i * near; k < first + (i + 1) * near; ++k) sum += given[positions[k]] * weights[k];
        output[line * sums + i] = sum;
      }
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::three_interpolate, opbridge_vision::three_interpolate_shape,
                  "opbridge_vision::three_interpolate(T features, int64 positions, T weights) -> T output",
                  opbridge::types<float, double>)
