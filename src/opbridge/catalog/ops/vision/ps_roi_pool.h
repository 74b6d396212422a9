// The mean of each bin of a box in the channel of the bin. The last row and the last column of an image are in no bin.
#include "rois.h"

namespace rois {

template <class T>
T mean_of(const T* plane, int64_t width, Range rows, Range columns) {
  if (rows.end <= rows.begin || columns.end <= columns.begin) return T(0);
  T total = 0;
  for (int64_t y = rows.begin; y < rows.end; ++y)
    for (int64_t x = columns.begin; x < columns.end; ++x) total += plane[y * width + x];
  return total / T((rows.end - rows.begin) * (columns.end - columns.begin));
}

template <class T>
void ps_roi_pool(Call& call) {
  const Geometry g = geometry_of(call);
  const auto images = call.input<T>(0), boxes = call.input<T>(1);
  const auto y = call.output<T>(0);
  const T scale = static_cast<T>(call.attribute_float("spatial_scale"));
  write_channels(call, g);
  call.parallel_for(g.boxes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      const T* box = boxes.data() + 5 * number;
      const T* plane = images.data() + image_of(call, box, g) * g.channels * g.plane();
      const auto rows = bins_of(box[2], box[4], scale, g.bins_y, g.height - 1, 0);
      const auto columns = bins_of(box[1], box[3], scale, g.bins_x, g.width - 1, 0);
      T* out = y.data() + number * g.channels;
      for (int64_t channel = 0; channel < g.channels; ++channel, plane += g.plane())
        out[channel] = mean_of(plane, g.width, rows[channel / g.bins_x % g.bins_y], columns[channel % g.bins_x]);
    }
  });
}

}  // namespace rois

OPBRIDGE_OPERATOR(rois::ps_roi_pool, rois::sensitive_shape,
                  "torchvision::ps_roi_pool(T input, T rois, float spatial_scale, int pooled_height, int pooled_width)"
                  " -> (T output, int32? channel_mapping)",
                  opbridge::types<float>)
