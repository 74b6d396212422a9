// Non-maximum suppression that returns which box suppressed which.
#include <algorithm>

#include "opbridge.h"

namespace opbridge_vision {

inline void nms_match_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 3 && call.size(0, 2) == 4, "boxes must have sizes (images, boxes, 4), not ", call.sizes(0));
  call.check(call.rank(1) == 3 && call.size(1, 0) == call.size(0, 0) && call.size(1, 2) == call.size(0, 1),
             "scores must have sizes (images, classes, boxes) for boxes of sizes ", call.sizes(0), ", not ", call.sizes(1));
  call.set_output(0, {opbridge::data_dependent, 4});
}

template <class T>
bool overlap_of_corners(const T* a, const T* b, T threshold) {
  const T width = std::max(std::min(a[2], b[2]) - std::max(a[0], b[0]), T(0));
  const T height = std::max(std::min(a[3], b[3]) - std::max(a[1], b[1]), T(0));
  const T shared = width * height, first = (a[2] - a[0]) * (a[3] - a[1]), second = (b[2] - b[0]) * (b[3] - b[1]);
  return shared >= threshold * (first + second - shared);
}

template <class T>
void nms_match(opbridge::Call& call) {
  const auto boxes = call.input<T>(0), scores = call.input<T>(1);
  const T iou_threshold = static_cast<T>(call.attribute_float("iou_threshold"));
  const T score_threshold = static_cast<T>(call.attribute_float("score_threshold"));
  const int64_t classes = scores.size(1), count = scores.size(2), lists = scores.size(0) * classes;
  int64_t* order = call.scratch<int64_t>(lists * count);
  int64_t* suppressor = call.scratch<int64_t>(lists * count);
  int64_t* counts = call.scratch<int64_t>(lists);
  call.parallel_for(lists, 1, [&](int64_t begin, int64_t end) {
    for (int64_t list = begin; list < end; ++list) {
      const T *score = &scores[list * count], *box = &boxes[list / classes * count * 4];
      int64_t *place = order + list * count, *by = suppressor + list * count, found = 0;
      for (int64_t i = 0; i < count; ++i) place[i] = i;
      // Equal scores keep their order.
      std::stable_sort(place, place + count, [&](int64_t i, int64_t j) { return score[i] > score[j]; });
      std::fill(by, by + count, int64_t(-1));
      for (int64_t i = 0; i < count; ++i)
        for (int64_t j = i + 1; j < count && by[i] < 0; ++j)
          if (by[j] < 0 && overlap_of_corners(box + 4 * place[i], box + 4 * place[j], iou_threshold)) {
            by[j] = i;
            found += score[place[i]] > score_threshold;
          }
      counts[list] = found;
    }
  });
  int64_t total = 0;
  for (int64_t list = 0; list < lists; ++list) total += counts[list];
  int64_t* row = call.allocate_output<int64_t>(0, {total, 4}).data();
  for (int64_t list = 0; list < lists; ++list)
    for (int64_t i = 0; i < count; ++i) {
      const int64_t *place = order + list * count, *by = suppressor + list * count;
      if (!(scores[list * count + place[i]] > score_threshold)) break;
      for (int64_t j = i + 1; j < count; ++j) {
        if (by[j] != i) continue;
        *row++ = list / classes;
        *row++ = list % classes;
        *row++ = place[i];
        *row++ = place[j];
      }
    }
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::nms_match, opbridge_vision::nms_match_shape,
                  "opbridge_vision::nms_match(T boxes, T scores, float iou_threshold, float score_threshold)"
                  " -> int64 matches",
                  opbridge::types<float, double>)
