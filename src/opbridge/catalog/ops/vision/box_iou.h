// Intersection over union of rotated boxes: centre x and y, width, height, and angle in degrees.
#include <algorithm>
#include <cmath>

#include "opbridge.h"

namespace rotated_overlaps {

void shape(opbridge::ShapeCall& call) {
  for (int i = 0; i < 2; ++i)
    call.check(call.rank(i) == 2 && call.size(i, 1) == 5, "boxes", i + 1, " must have sizes (boxes, 5), not ",
               call.sizes(i));
  call.set_output(0, {call.size(0, 0), call.size(1, 0)});
}

template <class T>
struct Box {
  T x, y, cosine, sine, half_width, half_height, area, radius;
};

template <class T>
Box<T> box_of(const T* numbers) {
  const T angle = numbers[4] * T(3.14159265358979323846 / 180), width = numbers[2], height = numbers[3];
  const T half_width = std::abs(width) / 2, half_height = std::abs(height) / 2;
  return {numbers[0], numbers[1],  std::cos(angle), std::sin(angle),
          half_width, half_height, width * height,  std::hypot(half_width, half_height)};
}

template <class T>
struct Point {
  T x, y;
};

// The part of a convex polygon on one side of a line: where sign * (its coordinate) <= limit. Returns the number of its
// corners (I. Sutherland and G. Hodgman, "Reentrant polygon clipping", 1974).
template <class T>
int clipped(const Point<T>* from, int count, T Point<T>::*axis, T sign, T limit, Point<T>* to) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const Point<T>&start = from[i], &end = from[i + 1 == count ? 0 : i + 1];
    const T before = limit - sign * (start.*axis), after = limit - sign * (end.*axis);
    if (before >= 0) to[kept++] = start;
    if ((before >= 0) != (after >= 0)) {
      const T share = before / (before - after);
      to[kept++] = {start.x + share * (end.x - start.x), start.y + share * (end.y - start.y)};
    }
  }
  return kept;
}

// The area that two boxes share: the corners of a, in the frame of b, clipped at the four sides of b.
template <class T>
T shared_area(const Box<T>& a, const Box<T>& b) {
  const T dx = a.x - b.x, dy = a.y - b.y, reach = a.radius + b.radius;
  if (dx * dx + dy * dy > reach * reach) return 0;
  const T x = dx * b.cosine - dy * b.sine, y = dx * b.sine + dy * b.cosine;
  const T cosine = a.cosine * b.cosine + a.sine * b.sine, sine = a.sine * b.cosine - a.cosine * b.sine;
  const T along_x = a.half_width * cosine, along_y = -a.half_width * sine;
  const T across_x = a.half_height * sine, across_y = a.half_height * cosine;
  Point<T> one[16], other[16];
  one[0] = {x + along_x + across_x, y + along_y + across_y};
  one[1] = {x - along_x + across_x, y - along_y + across_y};
  one[2] = {x - along_x - across_x, y - along_y - across_y};
  one[3] = {x + along_x - across_x, y + along_y - across_y};
  int count = clipped(one, 4, &Point<T>::x, T(1), b.half_width, other);
  count = clipped(other, count, &Point<T>::x, T(-1), b.half_width, one);
  count = clipped(one, count, &Point<T>::y, T(1), b.half_height, other);
  count = clipped(other, count, &Point<T>::y, T(-1), b.half_height, one);
  T twice = 0;
  for (int i = 2; i < count; ++i)
    twice += (one[i - 1].x - one[0].x) * (one[i].y - one[0].y) - (one[i].x - one[0].x) * (one[i - 1].y - one[0].y);
  return std::abs(twice) / 2;
}

template <class T>
void run(opbridge::Call& call) {
  constexpr T tiny = T(1e-14);
  const auto first = call.input<T>(0), second = call.input<T>(1);
  const auto result = call.output<float>(0);
  const int64_t count = second.size(0);
  auto* boxes = call.scratch<Box<T>>(count);
  for (int64_t j = 0; j < count; ++j) boxes[j] = box_of(second.data() + 5 * j);
  call.parallel_for(first.size(0), 1 + 256 / (count + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Box<T> box = box_of(first.data() + 5 * i);
      for (int64_t j = 0; j < count; ++j) {
        const bool has_area = box.area >= tiny && boxes[j].area >= tiny;
        const T shared = has_area ? shared_area(box, boxes[j]) : T(0);
        result[i * count + j] = has_area ? static_cast<float>(shared / (box.area + boxes[j].area - shared)) : 0.0f;
      }
    }
  });
}

}  // namespace rotated_overlaps

OPBRIDGE_OPERATOR(rotated_overlaps::run, rotated_overlaps::shape,
                  "opbridge::RotatedOverlaps(T boxes1, T boxes2) -> float32 overlaps", opbridge::types<float, double>)
