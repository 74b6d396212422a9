// Border align: the largest samples along each side of a box (BorderDet, arXiv:2007.11056).
#include <algorithm>

#include "opbridge.h"
#include "sampling.h"

namespace opbridge_vision {

inline void border_align_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 4 && call.size(0, 1) % 4 == 0,
             "input must have sizes (images, 4 * channels, height, width), not ", call.sizes(0));
  call.check(call.rank(1) == 3 && call.size(1, 0) == call.size(0, 0) && call.size(1, 2) == 4,
             "boxes must have sizes (", call.size(0, 0), ", boxes, 4), not ", call.sizes(1));
  call.check(call.attribute_int("pool_size") > 0, "pool_size must be positive");
  call.set_output(0, {call.size(0, 0), call.size(0, 1) / 4, call.size(1, 1), 4});
}

template <class T>
void border_align(opbridge::Call& call) {
  const auto input = call.input<T>(0), boxes = call.input<T>(1);
  const auto output = call.output<T>(0);
  const int64_t channels = input.size(1) / 4, height = input.size(2), width = input.size(3), count = boxes.size(1);
  const int64_t steps = call.attribute_int("pool_size"), area = height * width;
  if (output.count() == 0) return;
  call.check(area > 0, "the input has no pixels");
  call.parallel_for(boxes.size(0) * count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      const int64_t image = number / count;
      const T* box = &boxes[4 * number];
      const T step_x = (box[2] - box[0]) / static_cast<T>(steps), step_y = (box[3] - box[1]) / static_cast<T>(steps);
      for (int side = 0; side < 4; ++side) {
        // The top and the left side begin at the first corner, the others at the second one.
        const T *corner = box + side / 2 * 2, sign = side < 2 ? T(1) : T(-1);
        const T* planes = &input[(image * 4 + side) * channels * area];
        T* out = &output[(image * channels * count + number % count) * 4 + side];
        for (int64_t at = 0; at <= steps; ++at) {
          const T way = sign * static_cast<T>(at);
          const T x = side % 2 ? corner[0] : corner[0] + way * step_x, y = side % 2 ? corner[1] + way * step_y : corner[1];
          const BilinearSample<T> sample(height, width, y, x);
          for (int64_t c = 0; c < channels; ++c) {
            const T value = sample.inside ? sample.of(planes + c * area) : T(0);
            T& best = out[c * count * 4];
            // Also true for NaN.
            if (at == 0 || !(value <= best)) best = value;
          }
        }
      }
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::border_align, opbridge_vision::border_align_shape,
                  "opbridge_vision::border_align(T input, T boxes, int pool_size) -> T output",
                  opbridge::types<float, double>)
