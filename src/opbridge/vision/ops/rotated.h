// Rotated boxes: centre x and y, width, height, and angle in radians.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace opbridge_vision {

template <class T>
struct RotatedBox {
  T x, y, half_width, half_height, cosine, sine, area, radius;
};

template <class T>
RotatedBox<T> rotated_box(const T* box) {
  const T half_width = std::max(box[2], T(0)) / 2, half_height = std::max(box[3], T(0)) / 2;
  return {box[0], box[1], half_width, half_height, std::cos(box[4]), std::sin(box[4]), 4 * half_width * half_height,
          std::hypot(half_width, half_height)};
}

template <class T>
T clamped(T value, T low, T high) {
  return std::min(std::max(value, low), high);
}

// The position of `at` between `start` (0) and `stop` (1), clamped.
template <class T>
T fraction(T start, T stop, T at) {
  return start == stop ? T(0) : clamped((at - start) / (stop - start), T(0), T(1));
}

// The area between an edge and the x axis, with all coordinates clamped to a box around the origin. The sum over the edges
// of a polygon is the area that it shares with the box. A clamped edge has at most two bends, at the top and the bottom.
template <class T>
T area_under(T x0, T y0, T x1, T y1, T half_width, T half_height) {
  const T left = clamped(x0, -half_width, half_width), right = clamped(x1, -half_width, half_width);
  const T begin = y0 + fraction(x0, x1, left) * (y1 - y0), end = y0 + fraction(x0, x1, right) * (y1 - y0);
  const T bottom = fraction(begin, end, -half_height), top = fraction(begin, end, half_height);
  const T first = std::min(bottom, top), second = std::max(bottom, top);
  const auto height = [=](T at) { return clamped(begin + at * (end - begin), -half_height, half_height); };
  const T mean = first * (height(0) + height(first)) + (second - first) * (height(first) + height(second)) +
                 (1 - second) * (height(second) + height(1));
  return (left - right) * mean / 2;
}

// The area that two boxes share, computed in the frame in which b is upright.
template <class T>
T shared_area(const RotatedBox<T>& a, const RotatedBox<T>& b) {
  const T x = (a.x - b.x) * b.cosine + (a.y - b.y) * b.sine, y = (a.y - b.y) * b.cosine - (a.x - b.x) * b.sine;
  const T cosine = a.cosine * b.cosine + a.sine * b.sine, sine = a.sine * b.cosine - a.cosine * b.sine;
  const T along_x = a.half_width * cosine, along_y = a.half_width * sine;
  const T across_x = -a.half_height * sine, across_y = a.half_height * cosine;
  const T xs[] = {x + along_x + across_x, x - along_x + across_x, x - along_x - across_x, x + along_x - across_x};
  const T ys[] = {y + along_y + across_y, y - along_y + across_y, y - along_y - across_y, y + along_y - across_y};
  T area = 0;
  for (int i = 0; i < 4; ++i)
    area += area_under(xs[i], ys[i], xs[(i + 1) % 4], ys[(i + 1) % 4], b.half_width, b.half_height);
  return area;
}

// The same, decided for most boxes by the circles around them, without their corners.
template <class T>
T near_shared_area(const RotatedBox<T>& a, const RotatedBox<T>& b) {
  const T reach = a.radius + b.radius, dx = a.x - b.x, dy = a.y - b.y;
  return dx * dx + dy * dy > reach * reach ? T(0) : shared_area(a, b);
}

// Whether two boxes share more than `threshold` of the area that they cover.
template <class T>
bool overlap(const RotatedBox<T>& a, const RotatedBox<T>& b, T threshold) {
  const T shared = near_shared_area(a, b);
  return shared > threshold * (a.area + b.area - shared);
}

// Sorts the boxes `left` by falling score, writes those that no better kept box overlaps to `kept`, and returns how many
// these are. Equal scores keep their order.
template <class T>
int64_t suppress(const RotatedBox<T>* box, const T* score, int64_t* left, int64_t count, T threshold, int64_t* kept) {
  std::stable_sort(left, left + count, [&](int64_t i, int64_t j) { return score[i] > score[j]; });
  int64_t found = 0;
  for (int64_t at = 0; at < count; ++at) {
    bool is_free = true;
    for (int64_t k = 0; k < found && is_free; ++k) is_free = !overlap(box[kept[k]], box[left[at]], threshold);
    if (is_free) kept[found++] = left[at];
  }
  return found;
}

}  // namespace opbridge_vision
