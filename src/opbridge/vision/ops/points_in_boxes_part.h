// The box in which each point is.
#include <algorithm>

#include "opbridge.h"
#include "solids.h"

namespace opbridge_vision {

inline void points_in_boxes_part_shape(opbridge::ShapeCall& call) {
  check_points_and_boxes(call);
  call.set_output(0, {call.size(0, 0), call.size(0, 1)});
}

template <class T>
void points_in_boxes_part(opbridge::Call& call) {
  const auto output = call.output<int64_t>(0);
  std::fill(output.data(), output.data() + output.count(), int64_t(-1));
  each_point_and_box<T>(call, [&](int64_t point, int64_t box, bool inside) {
    if (inside) output[point] = box;
    return !inside;
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::points_in_boxes_part, opbridge_vision::points_in_boxes_part_shape,
                  "opbridge_vision::points_in_boxes_part(T points, T boxes) -> int64 box", opbridge::types<float, double>)
