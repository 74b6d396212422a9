// What the kernels that pool boxes share: the sizes of their inputs, and the rows and columns of a bin.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "opbridge.h"

namespace rois {

using opbridge::Call;
using opbridge::ShapeCall;

struct Geometry {
  int64_t images, channels, height, width, boxes, bins_y, bins_x;

  int64_t bins() const { return bins_y * bins_x; }
  int64_t plane() const { return height * width; }
};

inline Geometry geometry_of(const opbridge::Arguments& call) {
  call.check(call.rank(0) == 4, "expected images with 4 axes, got sizes ", call.sizes(0));
  call.check(call.rank(1) == 2 && call.size(1, 1) == 5, "expected boxes of sizes [n, 5], got ", call.sizes(1));
  const auto images = call.sizes(0);
  const Geometry g{images[0],       images[1],
                   images[2],       images[3],
                   call.size(1, 0), call.attribute_int("pooled_height"),
                   call.attribute_int("pooled_width")};
  call.check(g.bins_y > 0 && g.bins_x > 0, "expected a positive number of bins, got ", g.bins_y, " and ", g.bins_x);
  return g;
}

// The number of channels of the result if every bin has a channel of its own.
inline int64_t sensitive_channels(const opbridge::Arguments& call, const Geometry& g) {
  call.check(g.channels % g.bins() == 0, g.channels, " channels are no multiple of ", g.bins(), " bins");
  return g.channels / g.bins();
}

inline void set_outputs(ShapeCall& call, const Geometry& g, int64_t channels) {
  for (int output : {0, 1}) call.set_output(output, {g.boxes, channels, g.bins_y, g.bins_x});
}

inline void shape(ShapeCall& call) {
  const Geometry g = geometry_of(call);
  set_outputs(call, g, g.channels);
}

inline void sensitive_shape(ShapeCall& call) {
  const Geometry g = geometry_of(call);
  set_outputs(call, g, sensitive_channels(call, g));
}

// The channel that each bin reads, for all boxes.
inline void write_channels(Call& call, const Geometry& g) {
  if (!call.has_output(1)) return;
  int64_t position = 0;
  for (int32_t& channel : call.output<int32_t>(1)) channel = static_cast<int32_t>(position++ % g.channels);
}

// The number of the image of a box.
template <class T>
int64_t image_of(const Call& call, const T* box, const Geometry& g) {
  call.check(box[0] > T(-1) && box[0] < T(g.images), "a box is in image ", static_cast<double>(box[0]),
             ", where there are ", g.images);
  return static_cast<int64_t>(box[0]);
}

// As a whole number that fits an int32; 0 for what is no number.
template <class T>
int64_t whole(T x) {
  return std::isnan(x) ? 0 : static_cast<int64_t>(std::min(std::max(x, T(-2147483000)), T(2147483000)));
}

// The rows of an image from begin to before end; none if end is not larger.
struct Range {
  int64_t begin, end;
};

// The rows in each bin of a box: those before limit only. A box has `extra` rows more than its coordinates differ.
template <class T>
std::vector<Range> bins_of(T first, T last, T scale, int64_t count, int64_t limit, int64_t extra) {
  const int64_t start = whole(std::round(first * scale)), end = whole(std::round(last * scale));
  const T length = T(std::max<int64_t>(end - start + extra, 1)) / T(count);
  const auto clipped = [&](T edge) { return std::min(std::max<int64_t>(whole(edge) + start, 0), limit); };
  std::vector<Range> ranges;
  for (int64_t i = 0; i < count; ++i)
    ranges.push_back({clipped(std::floor(T(i) * length)), clipped(std::ceil(T(i + 1) * length))});
  return ranges;
}

}  // namespace rois
