// Non-maximum suppression that lowers scores instead of dropping boxes (arXiv:1704.04503).
#include <algorithm>
#include <cmath>

#include "opbridge.h"

namespace opbridge_vision {

inline void soft_nms_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 2 && call.size(0, 1) == 4, "boxes must have sizes (boxes, 4), not ", call.sizes(0));
  call.check(call.rank(1) == 1 && call.size(1, 0) == call.size(0, 0), "scores must have sizes (", call.size(0, 0),
             "), not ", call.sizes(1));
  const auto method = call.attribute_string("method");
  call.check(method == "linear" || method == "gaussian" || method == "naive",
             "method must be 'linear', 'gaussian' or 'naive'");
  call.set_output(0, {opbridge::data_dependent, 5});
  call.set_output(1, {opbridge::data_dependent});
}

template <class T>
void soft_nms(opbridge::Call& call) {
  const auto boxes = call.input<T>(0), scores = call.input<T>(1);
  const T threshold = static_cast<T>(call.attribute_float("iou_threshold"));
  const T sigma = static_cast<T>(call.attribute_float("sigma"));
  const T min_score = static_cast<T>(call.attribute_float("min_score"));
  const T offset = static_cast<T>(call.attribute_int("offset"));
  const auto method = call.attribute_string("method");
  const bool gaussian = method == "gaussian", linear = method == "linear";
  const int64_t count = scores.size(0);
  T *remaining = call.scratch<T>(count), *areas = call.scratch<T>(count), *final = call.scratch<T>(count);
  int64_t *left = call.scratch<int64_t>(count), *picked = call.scratch<int64_t>(count);
  for (int64_t i = 0; i < count; ++i) {
    const T* box = &boxes[4 * i];
    areas[i] = (box[2] - box[0] + offset) * (box[3] - box[1] + offset);
    remaining[i] = scores[i];
    left[i] = i;
  }
  int64_t kept = 0;
  // The boxes that are left keep their order, so that the first of equal scores is the best.
  for (int64_t size = count; size > 0;) {
    int64_t best = left[0];
    for (int64_t k = 1; k < size; ++k)
      if (remaining[left[k]] > remaining[best]) best = left[k];
    if (!(remaining[best] >= min_score)) break;
    picked[kept] = best;
    final[kept++] = remaining[best];
    const T* a = &boxes[4 * best];
    int64_t next = 0;
    for (int64_t k = 0; k < size; ++k) {
      const int64_t i = left[k];
      if (i == best) continue;
      const T* b = &boxes[4 * i];
      const T width = std::max(std::min(a[2], b[2]) - std::max(a[0], b[0]) + offset, T(0));
      const T height = std::max(std::min(a[3], b[3]) - std::max(a[1], b[1]) + offset, T(0));
      const T shared = width * height, covered = areas[best] + areas[i] - shared;
      const T overlap = covered > 0 ? shared / covered : T(0);
      if (gaussian)
        remaining[i] *= std::exp(-overlap * overlap / sigma);
      else if (overlap >= threshold)
        remaining[i] *= linear ? 1 - overlap : T(0);
      left[next++] = i;
    }
    size = next;
  }
  const auto rows = call.allocate_output<T>(0, {kept, 5});
  const auto positions = call.allocate_output<int64_t>(1, {kept});
  for (int64_t k = 0; k < kept; ++k) {
    std::copy(&boxes[4 * picked[k]], &boxes[4 * picked[k]] + 4, &rows[5 * k]);
    rows[5 * k + 4] = final[k];
    positions[k] = picked[k];
  }
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::soft_nms, opbridge_vision::soft_nms_shape,
                  "opbridge_vision::soft_nms(T boxes, T scores, float iou_threshold=0.3, float sigma=0.5,"
                  " float min_score=0.001, string method='linear', int offset=0) -> (T detections, int64 positions)",
                  opbridge::types<float, double>)
