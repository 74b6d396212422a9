// Non-maximum suppression of rotated boxes (centre x and y, width, height, angle in radians).
#include <algorithm>
#include <cmath>

#include "opbridge.h"

namespace rotated_nms {

template <class T>
struct Box {
  T x, y, half_width, half_height, cosine, sine, area, radius;
};

template <class T>
Box<T> make_box(const T* box) {
  const T half_width = std::max(box[2], T(0)) / 2, half_height = std::max(box[3], T(0)) / 2;
  return {box[0], box[1], half_width, half_height, std::cos(box[4]), std::sin(box[4]), 4 * half_width * half_height,
          std::hypot(half_width, half_height)};
}

template <class T>
T clamp(T value, T low, T high) {
  return std::min(std::max(value, low), high);
}

// How far along from `from` to `to` the number `at` lies, between 0 and 1.
template <class T>
T fraction(T from, T to, T at) {
  return from == to ? T(0) : clamp((at - from) / (to - from), T(0), T(1));
}

// The area between an edge and the x axis, all coordinates clamped to the box: the sum over a polygon's edges, in order, is
// the area that it shares with the box. Clamped, the edge bends at most twice, where it crosses the top and the bottom.
template <class T>
T clamped_area(T x0, T y0, T x1, T y1, T half_width, T half_height) {
  const T left = clamp(x0, -half_width, half_width), right = clamp(x1, -half_width, half_width);
  const T begin = y0 + fraction(x0, x1, left) * (y1 - y0), end = y0 + fraction(x0, x1, right) * (y1 - y0);
  const T bottom = fraction(begin, end, -half_height), top = fraction(begin, end, half_height);
  const T first = std::min(bottom, top), second = std::max(bottom, top);
  const auto height = [=](T at) { return clamp(begin + at * (end - begin), -half_height, half_height); };
  const T mean = first * (height(0) + height(first)) + (second - first) * (height(first) + height(second)) +
                 (1 - second) * (height(second) + height(1));
  return (left - right) * mean / 2;
}

// The area that two boxes share: the corners of a are brought into the frame of b, in which b is upright.
template <class T>
T shared_area(const Box<T>& a, const Box<T>& b) {
  const T x = (a.x - b.x) * b.cosine + (a.y - b.y) * b.sine, y = (a.y - b.y) * b.cosine - (a.x - b.x) * b.sine;
  const T cosine = a.cosine * b.cosine + a.sine * b.sine, sine = a.sine * b.cosine - a.cosine * b.sine;
  const T along_x = a.half_width * cosine, along_y = a.half_width * sine;
  const T across_x = -a.half_height * sine, across_y = a.half_height * cosine;
  const T xs[] = {x + along_x + across_x, x - along_x + across_x, x - along_x - across_x, x + along_x - across_x};
  const T ys[] = {y + along_y + across_y, y - along_y + across_y, y - along_y - across_y, y + along_y - across_y};
  T area = 0;
  for (int i = 0; i < 4; ++i)
    area += clamped_area(xs[i], ys[i], xs[(i + 1) % 4], ys[(i + 1) % 4], b.half_width, b.half_height);
  return area;
}

template <class T>
bool overlap(const Box<T>& a, const Box<T>& b, T threshold) {
  // Most pairs are told apart by their circles, or by their areas, of which the smaller bounds what they share.
  const T reach = a.radius + b.radius, dx = a.x - b.x, dy = a.y - b.y;
  if (dx * dx + dy * dy > reach * reach) return false;
  if (std::min(a.area, b.area) < threshold * std::max(a.area, b.area) * T(0.999)) return false;
  const T shared = shared_area(a, b);
  return shared > threshold * (a.area + b.area - shared);
}

void shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 2 && call.size(0, 1) == 5, "boxes must have sizes (n, 5), not ", call.sizes(0));
  call.check(call.rank(1) == 1 && call.size(1, 0) == call.size(0, 0), "there are ", call.size(0, 0),
             " boxes, but scores of sizes ", call.sizes(1));
  call.set_output(0, {opbridge::data_dependent});
}

// The best box is kept and suppresses those that overlap it; so does the best one left, until none is.
template <class T>
void run(opbridge::Call& call) {
  const auto boxes = call.input<T>(0);
  const auto scores = call.input<T>(1);
  const T threshold = static_cast<T>(call.attribute_float("threshold"));
  call.check(threshold >= 0, "threshold is ", threshold, ", but must not be negative");
  const int64_t count = scores.count();
  int64_t* left = call.scratch<int64_t>(count);
  for (int64_t i = 0; i < count; ++i) left[i] = i;
  // Equal scores keep their order, and a NaN comes first, as in torch.sort.
  std::stable_sort(left, left + count, [&](int64_t i, int64_t j) {
    return scores[i] > scores[j] || (std::isnan(scores[i]) && !std::isnan(scores[j]));
  });
  auto* made = call.scratch<Box<T>>(count);
  for (int64_t i = 0; i < count; ++i) made[i] = make_box(&boxes[5 * left[i]]);

  int64_t* kept = call.scratch<int64_t>(count);
  bool* suppressed = call.scratch<bool>(count);
  int64_t kept_count = 0;
  for (int64_t remaining = count; remaining > 0;) {
    const Box<T> best = made[0];
    kept[kept_count++] = left[0];
    call.parallel_for(remaining - 1, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin + 1; i < end + 1; ++i) suppressed[i] = overlap(made[i], best, threshold);
    });
    int64_t still = 0;
    for (int64_t i = 1; i < remaining; ++i) {
      if (suppressed[i]) continue;
      left[still] = left[i];
      made[still++] = made[i];
    }
    remaining = still;
  }
  std::copy(kept, kept + kept_count, call.allocate_output<int64_t>(0, {kept_count}).begin());
}

}  // namespace rotated_nms

OPBRIDGE_OPERATOR(rotated_nms::run, rotated_nms::shape,
                  "mylib::rotated_nms(T boxes, T scores, float threshold) -> int64 kept", opbridge::types<float, double>)
