// Non-maximum suppression of rotated boxes, for each image and class.
#include <algorithm>
#include <cmath>

#include "opbridge.h"
#include "rotated.h"

namespace opbridge_vision {

inline void nms_rotated_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 3 && call.size(0, 2) == 5, "boxes must have sizes (images, boxes, 5), not ", call.sizes(0));
  call.check(call.rank(1) == 3 && call.size(1, 0) == call.size(0, 0) && call.size(1, 2) == call.size(0, 1),
             "scores must have sizes (images, classes, boxes) for boxes of sizes ", call.sizes(0), ", not ", call.sizes(1));
  call.set_output(0, {opbridge::data_dependent, 3});
}

template <class T>
void nms_rotated(opbridge::Call& call) {
  const auto boxes = call.input<T>(0), scores = call.input<T>(1);
  const T iou_threshold = static_cast<T>(call.attribute_float("iou_threshold"));
  const T score_threshold = static_cast<T>(call.attribute_float("score_threshold"));
  const int64_t classes = scores.size(1), count = scores.size(2), lists = scores.size(0) * classes;
  auto* made = call.scratch<RotatedBox<T>>(boxes.size(0) * count);
  for (int64_t i = 0; i < boxes.size(0) * count; ++i) made[i] = rotated_box(&boxes[5 * i]);
  int64_t* order = call.scratch<int64_t>(lists * count);
  int64_t* kept = call.scratch<int64_t>(lists * count);
  int64_t* counts = call.scratch<int64_t>(lists);
  call.parallel_for(lists, 1, [&](int64_t begin, int64_t end) {
    for (int64_t list = begin; list < end; ++list) {
      const T* score = &scores[list * count];
      const RotatedBox<T>* box = made + list / classes * count;
      int64_t* left = order + list * count;
      // A box with a score below the threshold suppresses only boxes with lower scores, which are not returned either.
      int64_t remaining = 0;
      for (int64_t i = 0; i < count; ++i)
        if (score[i] > score_threshold) left[remaining++] = i;
      counts[list] = suppress(box, score, left, remaining, iou_threshold, kept + list * count);
    }
  });
  int64_t total = 0;
  for (int64_t list = 0; list < lists; ++list) total += counts[list];
  int64_t* row = call.allocate_output<int64_t>(0, {total, 3}).data();
  for (int64_t list = 0; list < lists; ++list)
    for (int64_t k = 0; k < counts[list]; ++k) {
      *row++ = list / classes;
      *row++ = list % classes;
      *row++ = kept[list * count + k];
    }
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::nms_rotated, opbridge_vision::nms_rotated_shape,
                  "opbridge_vision::nms_rotated(T boxes, T scores, float iou_threshold, float score_threshold)"
                  " -> int64 kept",
                  opbridge::types<float, double>)
