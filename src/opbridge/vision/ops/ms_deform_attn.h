// Multi-scale deformable attention (Deformable DETR, arXiv:2010.04159).
#include <algorithm>
#include <cmath>

#include "opbridge.h"

namespace opbridge_vision {

inline void ms_deform_attn_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 4, "value must have sizes (images, pixels, heads, channels), not ", call.sizes(0));
  call.check(call.rank(1) == 2 && call.size(1, 1) == 2, "spatial_shapes must have sizes (levels, 2), not ", call.sizes(1));
  const int64_t levels = call.size(1, 0);
  call.check(call.rank(2) == 1 && call.size(2, 0) == levels, "level_start_index must have sizes (", levels, "), not ",
             call.sizes(2));
  call.check(call.rank(3) == 6 && call.size(3, 0) == call.size(0, 0) && call.size(3, 2) == call.size(0, 2) &&
                 call.size(3, 3) == levels && call.size(3, 5) == 2,
             "sampling_locations must have sizes (images, queries, heads, levels, points, 2), not ", call.sizes(3));
  call.check(call.rank(4) == 5, "attention_weights must have five axes, not sizes ", call.sizes(4));
  for (int axis = 0; axis < 5; ++axis)
    call.check(call.size(4, axis) == call.size(3, axis), "attention_weights of sizes ", call.sizes(4),
               " do not fit locations of sizes ", call.sizes(3));
  call.set_output(0, {call.size(0, 0), call.size(3, 1), call.size(0, 2) * call.size(0, 3)});
}

template <class T>
void ms_deform_attn(opbridge::Call& call) {
  const auto value = call.input<T>(0), locations = call.input<T>(3), weights = call.input<T>(4);
  const auto shapes = call.input<int64_t>(1), starts = call.input<int64_t>(2);
  const auto output = call.output<T>(0);
  const int64_t pixels = value.size(1), heads = value.size(2), channels = value.size(3);
  const int64_t queries = locations.size(1), levels = locations.size(3), points = locations.size(4);
  for (int64_t level = 0; level < levels; ++level) {
    const int64_t height = shapes[2 * level], width = shapes[2 * level + 1], start = starts[level];
    // A product of the sizes could overflow.
    call.check(height >= 0 && width >= 0 && start >= 0 && start <= pixels &&
                   (width == 0 || height <= (pixels - start) / width),
               "level ", level, " has ", height, " x ", width, " pixels from pixel ", start, " on, but the value has ",
               pixels);
  }
  // One step is one head of one query.
  const int64_t work = levels * points * channels * 8 + 1;
  call.parallel_for(value.size(0) * queries * heads, 32768 / work + 1, [&](int64_t begin, int64_t end) {
    for (int64_t step = begin; step < end; ++step) {
      const int64_t image = step / (queries * heads), head = step % heads;
      T* sum = &output[step * channels];
      std::fill(sum, sum + channels, T(0));
      for (int64_t at = 0; at < levels * points; ++at) {
        const int64_t level = at / points, height = shapes[2 * level], width = shapes[2 * level + 1];
        const T* location = &locations[(step * levels * points + at) * 2];
        const T weight = weights[step * levels * points + at];
        const T x = location[0] * static_cast<T>(width) - T(0.5), y = location[1] * static_cast<T>(height) - T(0.5);
        // Also false for NaN.
        if (!(x > T(-1) && x < static_cast<T>(width) && y > T(-1) && y < static_cast<T>(height))) continue;
        const T left = std::floor(x), top = std::floor(y), right = x - left, down = y - top;
        for (int corner = 0; corner < 4; ++corner) {
          const int64_t row = static_cast<int64_t>(top) + corner / 2, column = static_cast<int64_t>(left) + corner % 2;
          if (row < 0 || row >= height || column < 0 || column >= width) continue;
          const T factor = weight * (corner / 2 ? down : 1 - down) * (corner % 2 ? right : 1 - right);
          const T* pixel = &value[((image * pixels + starts[level] + row * width + column) * heads + head) * channels];
          for (int64_t c = 0; c < channels; ++c) sum[c] += factor * pixel[c];
        }
      }
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::ms_deform_attn, opbridge_vision::ms_deform_attn_shape,
                  "opbridge_vision::ms_deform_attn(T value, int64 spatial_shapes, int64 level_start_index,"
                  " T sampling_locations, T attention_weights) -> T output",
                  opbridge::types<float, double>)
