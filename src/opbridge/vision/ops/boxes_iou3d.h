// The overlap of boxes in space.
#include <algorithm>

#include "opbridge.h"
#include "overlap.h"
#include "solids.h"

namespace opbridge_vision {

template <class T>
struct Solid {
  RotatedBox<T> base;
  T low, high, area;
};

template <class T>
Solid<T> solid(const T* box) {
  const auto base = seen_from_above(box);
  const T height = std::max(box[5], T(0));
  return {base, box[2] - height / 2, box[2] + height / 2, base.area * height};
}

template <class T>
T shared_volume(const Solid<T>& a, const Solid<T>& b) {
  const T height = std::min(a.high, b.high) - std::max(a.low, b.low);
  return height > 0 ? near_shared_area(a.base, b.base) * height : T(0);
}

inline void boxes_iou3d_shape(opbridge::ShapeCall& call) { overlap_shape(call, 7); }

template <class T>
void boxes_iou3d(opbridge::Call& call) {
  overlaps<Solid<T>, T>(call, solid<T>, shared_volume<T>);
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::boxes_iou3d, opbridge_vision::boxes_iou3d_shape,
                  "opbridge_vision::boxes_iou3d(T boxes1, T boxes2, string mode='iou', int aligned=0) -> T overlaps",
                  opbridge::types<float, double>)
