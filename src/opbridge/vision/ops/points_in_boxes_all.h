// Whether points are in boxes.
#include "opbridge.h"
#include "solids.h"

namespace opbridge_vision {

inline void points_in_boxes_all_shape(opbridge::ShapeCall& call) {
  check_points_and_boxes(call);
  call.set_output(0, {call.size(0, 0), call.size(0, 1), call.size(1, 1)});
}

template <class T>
void points_in_boxes_all(opbridge::Call& call) {
  const auto output = call.output<bool>(0);
  const int64_t count = output.size(2);
  each_point_and_box<T>(call, [&](int64_t point, int64_t box, bool inside) {
    output[point * count + box] = inside;
    return true;
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::points_in_boxes_all, opbridge_vision::points_in_boxes_all_shape,
                  "opbridge_vision::points_in_boxes_all(T points, T boxes) -> bool inside",
                  opbridge::types<float, double>)
