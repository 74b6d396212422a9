// The largest element of each bin of a box, and its place in the image.
#include <limits>

#include "rois.h"

namespace rois {

// The first of the largest elements of a bin; below the lowest float nothing is found, as in torchvision.
template <class T>
void find_largest(const T* plane, int64_t width, Range rows, Range columns, T& largest, int32_t& place) {
  const bool is_empty = rows.end <= rows.begin || columns.end <= columns.begin;
  largest = is_empty ? T(0) : T(std::numeric_limits<float>::lowest());
  place = -1;
  for (int64_t y = rows.begin; y < rows.end; ++y)
    for (int64_t x = columns.begin; x < columns.end; ++x)
      if (plane[y * width + x] > largest) {
        largest = plane[y * width + x];
        place = static_cast<int32_t>(y * width + x);
      }
}

template <class T>
void roi_pool(Call& call) {
  const Geometry g = geometry_of(call);
  const auto images = call.input<T>(0), boxes = call.input<T>(1);
  const auto y = call.output<T>(0);
  int32_t* places = call.has_output(1) ? call.output<int32_t>(1).data() : nullptr;
  const T scale = static_cast<T>(call.attribute_float("spatial_scale"));
  call.parallel_for(g.boxes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      const T* box = boxes.data() + 5 * number;
      const T* image = images.data() + image_of(call, box, g) * g.channels * g.plane();
      const auto rows = bins_of(box[2], box[4], scale, g.bins_y, g.height, 1);
      const auto columns = bins_of(box[1], box[3], scale, g.bins_x, g.width, 1);
      int64_t position = number * g.channels * g.bins();
      for (int64_t channel = 0; channel < g.channels; ++channel)
        for (const Range& some_rows : rows)
          for (const Range& some_columns : columns) {
            int32_t place;
            find_largest(image + channel * g.plane(), g.width, some_rows, some_columns, y[position], place);
            if (places != nullptr) places[position] = place;
            ++position;
          }
    }
  });
}

}  // namespace rois

OPBRIDGE_OPERATOR(rois::roi_pool, rois::shape,
                  "torchvision::roi_pool(T input, T rois, float spatial_scale, int pooled_height, int pooled_width)"
                  " -> (T output, int32? argmax)",
                  opbridge::types<float>)
