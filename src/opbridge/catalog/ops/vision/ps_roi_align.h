// The mean of interpolated points in each bin of a box, in the channel of the bin.
#include "rois.h"

namespace rois {

// A point between two rows, or two columns: 0 and 0 is the share of a point outside of the image.
template <class T>
struct Place {
  int64_t low, high;
  T low_share, high_share;
};

// The points of the bins of a box along one axis, bin by bin.
template <class T>
struct Points {
  int64_t per_bin;
  std::vector<Place<T>> places;

  opbridge::Span<const Place<T>> of_bin(int64_t bin) const {
    return opbridge::Span<const Place<T>>(places.data() + bin * count(), count());
  }

 private:
  // The extent of a box may be negative.
  int64_t count() const { return std::max<int64_t>(per_bin, 0); }
};

template <class T>
Place<T> place_of(T at, int64_t size) {
  // False for what is no number, too. An image without pixels has no points.
  if (size == 0 || !(at >= T(-1) && at <= T(size))) return {0, 0, T(0), T(0)};
  at = std::max(at, T(0));
  const int64_t low = static_cast<int64_t>(at);
  if (low >= size - 1) return {size - 1, size - 1, T(1), T(0)};
  return {low, low + 1, T(1) - (at - T(low)), at - T(low)};
}

template <class T>
Points<T> points_of(T first, T last, T scale, int64_t bins, int64_t ratio, int64_t size) {
  const T start = first * scale - T(0.5), length = (last * scale - T(0.5) - start) / T(bins);
  Points<T> points{ratio > 0 ? ratio : whole(std::ceil(length)), {}};
  for (int64_t bin = 0; bin < bins; ++bin)
    for (int64_t i = 0; i < points.per_bin; ++i) {
      const T in_bin = (T(i) + T(0.5)) * length / T(points.per_bin);
      points.places.push_back(place_of(T(bin) * length + start + in_bin, size));
    }
  return points;
}

// A point outside of the image adds nothing: a share of 0 would make something of what is no number.
template <class T>
T sum_of(const T* plane, int64_t width, opbridge::Span<const Place<T>> rows, opbridge::Span<const Place<T>> columns) {
  T total = 0;
  for (const Place<T>& y : rows)
    for (const Place<T>& x : columns) {
      if (y.low_share + y.high_share == 0 || x.low_share + x.high_share == 0) continue;
      const T *low = plane + y.low * width, *high = plane + y.high * width;
      total += y.low_share * x.low_share * low[x.low] + y.low_share * x.high_share * low[x.high] +
               y.high_share * x.low_share * high[x.low] + y.high_share * x.high_share * high[x.high];
    }
  return total;
}

template <class T>
void ps_roi_align(Call& call) {
  const Geometry g = geometry_of(call);
  const auto images = call.input<T>(0), boxes = call.input<T>(1);
  const auto y = call.output<T>(0);
  const T scale = static_cast<T>(call.attribute_float("spatial_scale"));
  const int64_t ratio = call.attribute_int("sampling_ratio");
  write_channels(call, g);
  call.parallel_for(g.boxes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      const T* box = boxes.data() + 5 * number;
      const T* plane = images.data() + image_of(call, box, g) * g.channels * g.plane();
      const Points<T> rows = points_of(box[2], box[4], scale, g.bins_y, ratio, g.height);
      const Points<T> columns = points_of(box[1], box[3], scale, g.bins_x, ratio, g.width);
      T* out = y.data() + number * g.channels;
      for (int64_t channel = 0; channel < g.channels; ++channel, plane += g.plane()) {
        const int64_t row = channel / g.bins_x % g.bins_y, column = channel % g.bins_x;
        const T total = sum_of(plane, g.width, rows.of_bin(row), columns.of_bin(column));
        out[channel] = total / T(rows.per_bin * columns.per_bin);
      }
    }
  });
}

}  // namespace rois

OPBRIDGE_OPERATOR(rois::ps_roi_align, rois::sensitive_shape,
                  "torchvision::ps_roi_align(T input, T rois, float spatial_scale, int pooled_height, int pooled_width,"
                  " int sampling_ratio) -> (T output, int32? channel_mapping)",
                  opbridge::types<float>)
