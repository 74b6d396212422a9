// The features of selected points.
#include "opbridge.h"
#include "positions.h"

namespace opbridge_vision {

inline void group_points_shape(opbridge::ShapeCall& call) {
  check_positions(call);
  opbridge::Sizes grouped{call.size(0, 0), call.size(0, 1)};
  for (int axis = 1; axis < call.rank(1); ++axis) grouped.push_back(call.size(1, axis));
  call.set_output(0, grouped);
}

template <class T>
void group_points(opbridge::Call& call) {
  const auto features = call.input<T>(0);
  const auto positions = call.input<int64_t>(1);
  const auto output = call.output<T>(0);
  const int64_t channels = features.size(1), points = features.size(2);
  if (output.count() == 0) return;
  check_range(call, positions, points);
  const int64_t each = positions.count() / positions.size(0);
  call.parallel_for(features.size(0) * channels, 16384 / each + 1, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const T* given = &features[line * points];
      const int64_t* place = &positions[line / channels * each];
      for (int64_t i = 0; i < each; ++i) output[line * each + i] = given[place[i]];
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::group_points, opbridge_vision::group_points_shape,
                  "opbridge_vision::group_points(T features, int64 positions) -> T output",
                  opbridge::types<float, double>)
