// The overlap of rotated boxes.
#include <algorithm>

#include "opbridge.h"
#include "overlap.h"
#include "rotated.h"

namespace opbridge_vision {

inline void box_iou_rotated_shape(opbridge::ShapeCall& call) { overlap_shape(call, 5); }

template <class T>
void box_iou_rotated(opbridge::Call& call) {
  const bool clockwise = call.attribute_int("clockwise") != 0;
  const auto make = [=](const T* numbers) {
    RotatedBox<T> box = rotated_box(numbers);
    if (!clockwise) box.sine = -box.sine;
    return box;
  };
  overlaps<RotatedBox<T>, T>(call, make, [](const auto& a, const auto& b) { return near_shared_area(a, b); });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::box_iou_rotated, opbridge_vision::box_iou_rotated_shape,
                  "opbridge_vision::box_iou_rotated(T boxes1, T boxes2, string mode='iou', int aligned=0,"
                  " int clockwise=1) -> T overlaps",
                  opbridge::types<float, double>)
