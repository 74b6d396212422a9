// RoI align for rotated boxes.
#include <algorithm>
#include <cmath>

#include "opbridge.h"
#include "sampling.h"

namespace opbridge_vision {

inline void roi_align_rotated_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 4, "input must have sizes (images, channels, height, width), not ", call.sizes(0));
  call.check(call.rank(1) == 2 && call.size(1, 1) == 6, "rois must have sizes (boxes, 6), not ", call.sizes(1));
  const int64_t height = call.attribute_int("output_height"), width = call.attribute_int("output_width");
  call.check(height > 0 && width > 0, "an output of ", height, " x ", width, " bins");
  call.set_output(0, {call.size(1, 0), call.size(0, 1), height, width});
}

template <class T>
void roi_align_rotated(opbridge::Call& call) {
  const auto input = call.input<T>(0), rois = call.input<T>(1);
  const auto output = call.output<T>(0);
  const int64_t images = input.size(0), channels = input.size(1), height = input.size(2), width = input.size(3);
  const int64_t rows = output.size(2), columns = output.size(3), area = rows * columns;
  const T scale = static_cast<T>(call.attribute_float("spatial_scale"));
  const int64_t ratio = call.attribute_int("sampling_ratio");
  const bool aligned = call.attribute_int("aligned") != 0, clockwise = call.attribute_int("clockwise") != 0;
  if (output.count() == 0) return;
  call.check(height > 0 && width > 0, "the input has no pixels");
  call.parallel_for(rois.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      const T* roi = &rois[6 * number];
      call.check(roi[0] >= 0 && roi[0] < static_cast<T>(images), "box ", number, " is in image ", roi[0], " of ", images);
      const T* image = &input[static_cast<int64_t>(roi[0]) * channels * height * width];
      const T shift = aligned ? T(0.5) : T(0), least = aligned ? -INFINITY : T(1);
      const T centre_x = roi[1] * scale - shift, centre_y = roi[2] * scale - shift;
      const T box_width = std::max(roi[3] * scale, least), box_height = std::max(roi[4] * scale, least);
      const T cosine = std::cos(roi[5]), sine = clockwise ? -std::sin(roi[5]) : std::sin(roi[5]);
      const T bin_height = box_height / static_cast<T>(rows), bin_width = box_width / static_cast<T>(columns);
      const int64_t grid_y = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(bin_height));
      const int64_t grid_x = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(bin_width));
      T* sums = &output[number * channels * area];
      std::fill(sums, sums + channels * area, T(0));
      for (int64_t bin = 0; bin < area; ++bin)
        for (int64_t at = 0; at < std::max(grid_y, int64_t(0)) * std::max(grid_x, int64_t(0)); ++at) {
          const T step_y = (static_cast<T>(at / grid_x) + T(0.5)) / static_cast<T>(grid_y);
          const T step_x = (static_cast<T>(at % grid_x) + T(0.5)) / static_cast<T>(grid_x);
          const T along_y = (static_cast<T>(bin / columns) + step_y) * bin_height - box_height / 2;
          const T along_x = (static_cast<T>(bin % columns) + step_x) * bin_width - box_width / 2;
          const BilinearSample<T> sample(height, width, along_y * cosine - along_x * sine + centre_y,
                                         along_y * sine + along_x * cosine + centre_x);
          for (int64_t c = 0; sample.inside && c < channels; ++c)
            sums[c * area + bin] += sample.of(image + c * height * width);
        }
      const T count = static_cast<T>(std::max(grid_y, int64_t(0)) * std::max(grid_x, int64_t(0)));
      for (int64_t i = 0; i < channels * area; ++i) sums[i] /= std::max(count, T(1));
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::roi_align_rotated, opbridge_vision::roi_align_rotated_shape,
                  "opbridge_vision::roi_align_rotated(T input, T rois, int output_height, int output_width,"
                  " float spatial_scale, int sampling_ratio, int aligned, int clockwise) -> T output",
                  opbridge::types<float, double>)
