// Non-maximum suppression of boxes in space by their overlap in the bird's-eye view.
#include <algorithm>

#include "opbridge.h"
#include "solids.h"

namespace opbridge_vision {

inline void nms3d_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 2 && call.size(0, 1) == 7, "boxes must have sizes (boxes, 7), not ", call.sizes(0));
  call.check(call.rank(1) == 1 && call.size(1, 0) == call.size(0, 0), "scores must have sizes (", call.size(0, 0),
             "), not ", call.sizes(1));
  call.set_output(0, {opbridge::data_dependent});
}

template <class T>
void nms3d(opbridge::Call& call) {
  const auto boxes = call.input<T>(0), scores = call.input<T>(1);
  const T threshold = static_cast<T>(call.attribute_float("iou_threshold"));
  const bool rotated = call.attribute_int("rotated") != 0;
  const int64_t count = scores.size(0);
  auto* seen = call.scratch<RotatedBox<T>>(count);
  int64_t *order = call.scratch<int64_t>(count), *kept = call.scratch<int64_t>(count);
  for (int64_t i = 0; i < count; ++i) {
    seen[i] = seen_from_above(&boxes[7 * i], rotated);
    order[i] = i;
  }
  const int64_t found = suppress(seen, scores.data(), order, count, threshold, kept);
  std::copy(kept, kept + found, call.allocate_output<int64_t>(0, {found}).data());
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::nms3d, opbridge_vision::nms3d_shape,
                  "opbridge_vision::nms3d(T boxes, T scores, float iou_threshold, int rotated=1) -> int64 kept",
                  opbridge::types<float, double>)
