// Content-aware reassembly of features (CARAFE, arXiv:1905.02188).
#include <algorithm>
#include <vector>

#include "opbridge.h"

namespace opbridge_vision {

inline void carafe_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 4, "features must have sizes (images, channels, height, width), not ", call.sizes(0));
  const int64_t kernel = call.attribute_int("kernel_size"), groups = call.attribute_int("group_size");
  const int64_t factor = call.attribute_int("scale_factor");
  call.check(kernel > 0 && kernel % 2 == 1 && groups > 0 && factor > 0,
             "kernel_size must be odd, and group_size and scale_factor must be positive");
  call.check(call.size(0, 1) % groups == 0, call.size(0, 1), " channels are no multiple of ", groups, " groups");
  const int64_t height = call.size(0, 2) * factor, width = call.size(0, 3) * factor;
  call.check(call.rank(1) == 4 && call.size(1, 0) == call.size(0, 0) && call.size(1, 1) == groups * kernel * kernel &&
                 call.size(1, 2) == height && call.size(1, 3) == width,
             "masks must have sizes (", call.size(0, 0), ", ", groups * kernel * kernel, ", ", height, ", ", width,
             "), not ", call.sizes(1));
  call.set_output(0, {call.size(0, 0), call.size(0, 1), height, width});
}

template <class T>
void carafe(opbridge::Call& call) {
  const auto features = call.input<T>(0), masks = call.input<T>(1);
  const auto output = call.output<T>(0);
  const int64_t kernel = call.attribute_int("kernel_size"), factor = call.attribute_int("scale_factor");
  const int64_t groups = call.attribute_int("group_size"), half = kernel / 2;
  const int64_t channels = features.size(1), height = features.size(2), width = features.size(3);
  const int64_t out_height = output.size(2), out_width = output.size(3), out_area = out_height * out_width;
  if (output.count() == 0) return;
  // Each row with zeros around it, and each pixel repeated as often as it is read.
  const int64_t wide = (width + 2 * half) * factor;
  const int64_t work = kernel * kernel * out_area;
  call.parallel_for(features.size(0) * channels, 16384 / work + 1, [&](int64_t begin, int64_t end) {
    std::vector<T> rows(static_cast<size_t>(height * wide));
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t group = plane % channels / (channels / groups);
      const T* mask = &masks[(plane / channels * groups + group) * work];
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = 0; j < width; ++j)
          std::fill_n(&rows[static_cast<size_t>(i * wide + (j + half) * factor)], factor,
                      features[(plane * height + i) * width + j]);
      for (int64_t y = 0; y < out_height; ++y) {
        T* out = &output[plane * out_area + y * out_width];
        std::fill(out, out + out_width, T(0));
        for (int64_t tap = 0; tap < kernel * kernel; ++tap) {
          const int64_t row = y / factor + tap / kernel - half;
          if (row < 0 || row >= height) continue;
          const T* pixels = &rows[static_cast<size_t>(row * wide + tap % kernel * factor)];
          const T* weights = mask + tap * out_area + y * out_width;
          for (int64_t x = 0; x < out_width; ++x) out[x] += pixels[x] * weights[x];
        }
      }
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::carafe, opbridge_vision::carafe_shape,
                  "opbridge_vision::carafe(T features, T masks, int kernel_size, int group_size, int scale_factor)"
                  " -> T output",
                  opbridge::types<float, double>)
