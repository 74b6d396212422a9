// The largest element of each bin of a box, and its place in the image.
#include <algorithm>
#include <limits>
#include <vector>

#include "rois.h"

namespace rois {

// Below the lowest float nothing is found, as in torchvision, and neither is NaN.
template <class T>
T larger(T value, T largest) {
  return value > largest ? value : largest;
}

// The largest element of each column between two rows.
template <class T>
void find_largest_of_columns(const T* plane, int64_t width, Range rows, Range columns, T* largest) {
  const int64_t count = columns.end - columns.begin;
  std::fill(largest, largest + count, T(std::numeric_limits<float>::lowest()));
  for (int64_t y = rows.begin; y < rows.end; ++y) {
    const T* row = plane + y * width + columns.begin;
    for (int64_t x = 0; x < count; ++x) largest[x] = larger(row[x], largest[x]);
  }
}

// The first place of the largest element of a bin, -1 if nothing was found.
template <class T>
int32_t place_of(T largest, const T* plane, int64_t width, Range rows, Range columns) {
  if (!(largest > T(std::numeric_limits<float>::lowest()))) return -1;
  for (int64_t y = rows.begin; y < rows.end; ++y)
    for (int64_t x = columns.begin; x < columns.end; ++x)
      if (plane[y * width + x] == largest) return static_cast<int32_t>(y * width + x);
  return -1;
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
      // The bins follow each other, and an empty one begins and ends at the same border.
      const Range all{columns.front().begin, std::max(columns.back().end, columns.front().begin)};
      std::vector<T> of_columns(static_cast<size_t>(all.end - all.begin));
      int64_t position = number * g.channels * g.bins();
      for (int64_t channel = 0; channel < g.channels; ++channel) {
        const T* plane = image + channel * g.plane();
        for (const Range& some_rows : rows) {
          find_largest_of_columns(plane, g.width, some_rows, all, of_columns.data());
          for (const Range& some_columns : columns) {
            const bool is_empty = some_rows.end <= some_rows.begin || some_columns.end <= some_columns.begin;
            T largest = is_empty ? T(0) : T(std::numeric_limits<float>::lowest());
            for (int64_t x = some_columns.begin; !is_empty && x < some_columns.end; ++x)
              largest = larger(of_columns[static_cast<size_t>(x - all.begin)], largest);
            if (places != nullptr)
              places[position] = is_empty ? -1 : place_of(largest, plane, g.width, some_rows, some_columns);
            y[position++] = largest;
          }
        }
      }
    }
  });
}

}  // namespace rois

OPBRIDGE_OPERATOR(rois::roi_pool, rois::shape,
                  "torchvision::roi_pool(T input, T rois, float spatial_scale, int pooled_height, int pooled_width)"
                  " -> (T output, int32? argmax)",
                  opbridge::types<float>)
