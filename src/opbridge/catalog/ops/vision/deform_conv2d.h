// Deformable convolution, with groups of weights and groups of offsets: the points that each place of the output reads are
// sampled into columns, a strip of places and a few channels at a time, and multiplied with the weights.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "opbridge.h"

namespace deform_conv2d {

using opbridge::Call;
using opbridge::ShapeCall;

// What the attributes and the inputs' sizes say; out of an operator's own names, in its order.
struct Geometry {
  int64_t batch, channels, height, width, filters, per_group, taps_y, taps_x, rows, columns;
  int64_t stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x, groups, offset_groups;
  bool has_mask;

  int64_t taps() const { return taps_y * taps_x; }
  int64_t area() const { return rows * columns; }
  int64_t plane() const { return height * width; }
};

inline int64_t output_size(int64_t size, int64_t taps, int64_t stride, int64_t pad, int64_t dilation) {
  const int64_t last = size + 2 * pad - dilation * (taps - 1) - 1;
  return last < 0 ? 0 : last / stride + 1;
}

inline Geometry geometry_of(const opbridge::Arguments& call) {
  for (int index : {0, 1, 2}) call.check(call.rank(index) == 4, "expected 4 axes, got sizes ", call.sizes(index));
  const auto x = call.sizes(0), weight = call.sizes(1), offset = call.sizes(2);
  const auto number = [&](const char* name) { return call.attribute_int(name); };
  Geometry g{x[0], x[1], x[2], x[3], weight[0], weight[1], weight[2], weight[3], 0, 0,
             number("stride_h"), number("stride_w"), number("pad_h"), number("pad_w"), number("dilation_h"),
             number("dilation_w"), number("groups"), number("offset_groups"), number("use_mask") != 0};
  call.check(g.stride_y > 0 && g.stride_x > 0 && g.dilation_y > 0 && g.dilation_x > 0,
             "strides and dilations must be positive");
  call.check(g.pad_y >= 0 && g.pad_x >= 0, "padding must not be negative");
  call.check(g.groups > 0 && g.per_group * g.groups == g.channels && g.filters % g.groups == 0, g.groups,
             " groups don't fit an input of sizes ", x, " and weights of ", weight);
  call.check(g.offset_groups > 0 && g.channels % g.offset_groups == 0, g.offset_groups,
             " groups of offsets don't fit ", g.channels, " channels");
  g.rows = output_size(g.height, g.taps_y, g.stride_y, g.pad_y, g.dilation_y);
  g.columns = output_size(g.width, g.taps_x, g.stride_x, g.pad_x, g.dilation_x);
  call.check(offset[0] == g.batch && offset[1] == 2 * g.offset_groups * g.taps() && offset[2] == g.rows &&
                 offset[3] == g.columns,
             "offsets of sizes ", offset, " don't fit an output of ", g.rows, " rows and ", g.columns, " columns");
  if (g.has_mask) {
    call.check(call.rank(3) == 4, "expected 4 axes, got sizes ", call.sizes(3));
    const auto mask = call.sizes(3);
    call.check(mask[0] == g.batch && mask[1] == g.offset_groups * g.taps() && mask[2] == g.rows && mask[3] == g.columns,
               "a mask of sizes ", mask, " does not fit offsets of ", offset);
  }
  call.check(call.rank(4) == 1 && call.size(4, 0) == g.filters, "a bias of sizes ", call.sizes(4), " does not fit ",
             g.filters, " filters");
  return g;
}

inline void shape(ShapeCall& call) {
  const Geometry g = geometry_of(call);
  call.set_output(0, {g.batch, g.filters, g.rows, g.columns});
}

// A strip is so many places of the output, one after the other; so many filters are computed at a time.
constexpr int64_t strip = 64;
constexpr int lines = 6;

// Where a point lies between four pixels: their positions in the plane, negative for those outside, and their shares.
template <class T>
struct Point {
  int32_t places[4];
  T shares[4];
};

template <class T>
inline Point<T> point_at(T y, T x, int64_t height, int64_t width, T factor) {
  Point<T> point{{-1, -1, -1, -1}, {}};
  // False for what is no number, too.
  if (!(y > T(-1) && y < T(height) && x > T(-1) && x < T(width))) return point;
  const T top = std::floor(y), left = std::floor(x), down = y - top, right = x - left;
  const int64_t row = static_cast<int64_t>(top), column = static_cast<int64_t>(left);
  for (int corner = 0; corner < 4; ++corner) {
    const int64_t at_row = row + corner / 2, at_column = column + corner % 2;
    if (at_row < 0 || at_row >= height || at_column < 0 || at_column >= width) continue;
    point.places[corner] = static_cast<int32_t>(at_row * width + at_column);
    point.shares[corner] = factor * (corner / 2 ? down : 1 - down) * (corner % 2 ? right : 1 - right);
  }
  return point;
}

// The points of a strip in one group of offsets: tap after tap.
template <class T>
void find_points(const Geometry& g, const T* offset, const T* mask, int64_t begin, int64_t count, Point<T>* points) {
  const int64_t area = g.area();
  for (int64_t tap = 0; tap < g.taps(); ++tap)
    for (int64_t i = 0; i < count; ++i) {
      const int64_t place = begin + i, row = place / g.columns, column = place % g.columns;
      const T at_y = T(row * g.stride_y - g.pad_y + tap / g.taps_x * g.dilation_y);
      const T at_x = T(column * g.stride_x - g.pad_x + tap % g.taps_x * g.dilation_x);
      const T y = at_y + offset[2 * tap * area + place];
      const T x = at_x + offset[(2 * tap + 1) * area + place];
      const T factor = mask == nullptr ? T(1) : mask[tap * area + place];
      points[tap * strip + i] = point_at(y, x, g.height, g.width, factor);
    }
}

// Nothing is read for a pixel outside: a share of 0 would make something of what is no number.
template <class T>
T pixel(const T* plane, const Point<T>& point, int corner) {
  const int32_t place = point.places[corner];
  return place < 0 ? T(0) : point.shares[corner] * plane[place];
}

// A row of columns for each tap: what one channel has at the points.
template <class T>
void sample(const Geometry& g, const T* plane, const Point<T>* points, int64_t count, T* columns) {
  for (int64_t tap = 0; tap < g.taps(); ++tap) {
    for (int64_t i = 0; i < count; ++i) {
      const Point<T>& point = points[tap * strip + i];
      columns[tap * strip + i] =
          pixel(plane, point, 0) + pixel(plane, point, 1) + pixel(plane, point, 2) + pixel(plane, point, 3);
    }
    std::fill(columns + tap * strip + count, columns + (tap + 1) * strip, T(0));
  }
}

// sums[f][i] += weights[f][k] * columns[k][i], for some lines f and all places i of the strip.
template <int count, class T>
inline void multiply(const T* weights, int64_t stride, const T* columns, int64_t depth, T* sums) {
  typedef T Lane __attribute__((vector_size(32)));
  constexpr int64_t width = 2 * sizeof(Lane) / sizeof(T);
  for (int64_t begin = 0; begin < strip; begin += width) {
    Lane kept[count][2];
    for (int f = 0; f < count; ++f) std::memcpy(kept[f], sums + f * strip + begin, sizeof(kept[f]));
    for (int64_t k = 0; k < depth; ++k) {
      Lane pair[2];
      std::memcpy(pair, columns + k * strip + begin, sizeof(pair));
      for (int f = 0; f < count; ++f) {
        kept[f][0] += weights[f * stride + k] * pair[0];
        kept[f][1] += weights[f * stride + k] * pair[1];
      }
    }
    for (int f = 0; f < count; ++f) std::memcpy(sums + f * strip + begin, kept[f], sizeof(kept[f]));
  }
}

template <class T>
void multiply_all(const T* weights, int64_t stride, int64_t filters, const T* columns, int64_t depth, T* sums) {
  int64_t f = 0;
  for (; f + lines <= filters; f += lines)
    multiply<lines>(weights + f * stride, stride, columns, depth, sums + f * strip);
  for (; f < filters; ++f) multiply<1>(weights + f * stride, stride, columns, depth, sums + f * strip);
}

// Channels that are sampled before they are multiplied: their columns stay in the nearest cache.
constexpr int64_t block = 8;

template <class T>
class Strips {
 public:
  Strips(const Geometry& geometry, const T* x, const T* weights, const T* offset, const T* mask, const T* bias, T* y)
      : g_(geometry), x_(x), weights_(weights), offset_(offset), mask_(mask), bias_(bias), y_(y) {}

  int64_t per_image() const { return (g_.area() + strip - 1) / strip; }

  // A body of a parallel loop over the strips of all images.
  void operator()(int64_t begin, int64_t end) const {
    std::vector<Point<T>> points(g_.taps() * strip);
    std::vector<T> columns(std::min(block, g_.per_group) * g_.taps() * strip), sums(g_.filters / g_.groups * strip);
    for (int64_t number = begin; number < end; ++number) {
      const int64_t image = number / per_image(), first = number % per_image() * strip;
      const int64_t count = std::min(strip, g_.area() - first);
      int64_t found = -1;
      for (int64_t group = 0; group < g_.groups; ++group) {
        std::fill(sums.begin(), sums.end(), T(0));
        for (int64_t channel = 0; channel < g_.per_group;) {
          const int64_t of_all = group * g_.per_group + channel, each = g_.channels / g_.offset_groups;
          const int64_t shared = of_all / each;
          const int64_t some = std::min({block, g_.per_group - channel, (shared + 1) * each - of_all});
          if (shared != found) find(image, found = shared, first, count, points.data());
          for (int64_t i = 0; i < some; ++i)
            sample(g_, x_ + (image * g_.channels + of_all + i) * g_.plane(), points.data(), count,
                   columns.data() + i * g_.taps() * strip);
          multiply_all(weights_ + (group * filters() * g_.per_group + channel) * g_.taps(), g_.per_group * g_.taps(),
                       filters(), columns.data(), some * g_.taps(), sums.data());
          channel += some;
        }
        write(image, group, first, count, sums.data());
      }
    }
  }

 private:
  int64_t filters() const { return g_.filters / g_.groups; }

  void find(int64_t image, int64_t shared, int64_t first, int64_t count, Point<T>* points) const {
    const int64_t size = g_.taps() * g_.area(), number = image * g_.offset_groups + shared;
    find_points(g_, offset_ + number * 2 * size, mask_ == nullptr ? nullptr : mask_ + number * size, first, count, points);
  }

  void write(int64_t image, int64_t group, int64_t first, int64_t count, const T* sums) const {
    for (int64_t f = 0; f < filters(); ++f) {
      const int64_t filter = group * filters() + f;
      T* line = y_ + (image * g_.filters + filter) * g_.area() + first;
      for (int64_t i = 0; i < count; ++i) line[i] = sums[f * strip + i] + bias_[filter];
    }
  }

  const Geometry& g_;
  const T* x_;
  const T* weights_;
  const T *offset_, *mask_, *bias_;
  T* y_;
};

template <class T>
void compute(Call& call) {
  const Geometry g = geometry_of(call);
  call.check(g.plane() <= INT32_MAX, "an image of ", g.height, " rows and ", g.width, " columns is too large");
  const auto x = call.input<T>(0), weight = call.input<T>(1), offset = call.input<T>(2), bias = call.input<T>(4);
  const T* mask = g.has_mask ? call.input<T>(3).data() : nullptr;
  const auto y = call.output<T>(0);
  if (y.count() == 0) return;
  const Strips<T> strips(g, x.data(), weight.data(), offset.data(), mask, bias.data(), y.data());
  call.parallel_for(g.batch * strips.per_image(), 1, strips);
}

}  // namespace deform_conv2d

OPBRIDGE_OPERATOR(deform_conv2d::compute, deform_conv2d::shape,
                  "torchvision::deform_conv2d(T input, T weight, T offset, T mask, T bias, int stride_h, int stride_w,"
                  " int pad_h, int pad_w, int dilation_h, int dilation_w, int groups, int offset_groups, int use_mask)"
                  " -> T output",
                  opbridge::types<float, double>)
