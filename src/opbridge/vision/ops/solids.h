// Boxes in space: x, y, z, their sizes along these axes, and the angle in radians from the x axis to the y axis.
#pragma once

#include <algorithm>
#include <cmath>

#include "opbridge.h"
#include "rotated.h"

namespace opbridge_vision {

// The rotated box that a box is in the bird's-eye view.
template <class T>
RotatedBox<T> seen_from_above(const T* box, bool turned = true) {
  const T numbers[] = {box[0], box[1], box[3], box[4], turned ? box[6] : T(0)};
  return rotated_box(numbers);
}

// The position of a box of which some points are asked whether they are inside.
template <class T>
struct Container {
  T x, y, z, half_x, half_y, half_z, cosine, sine;

  explicit Container(const T* box)
      : x(box[0]), y(box[1]), z(box[2]), half_x(box[3] / 2), half_y(box[4] / 2), half_z(box[5] / 2),
        cosine(std::cos(box[6])), sine(std::sin(box[6])) {}

  bool contains(const T* point) const {
    const T dx = point[0] - x, dy = point[1] - y;
    return std::abs(point[2] - z - half_z) <= half_z && std::abs(dx * cosine + dy * sine) < half_x &&
           std::abs(dy * cosine - dx * sine) < half_y;
  }
};

inline void check_points_and_boxes(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 3 && call.size(0, 2) == 3, "points must have sizes (batch, points, 3), not ", call.sizes(0));
  call.check(call.rank(1) == 3 && call.size(1, 0) == call.size(0, 0) && call.size(1, 2) == 7, "boxes must have sizes (",
             call.size(0, 0), ", boxes, 7), not ", call.sizes(1));
}

// Calls found(point, box, inside) for each point and each box of its batch until it returns false.
template <class T, class Found>
void each_point_and_box(opbridge::Call& call, const Found& found) {
  const auto points = call.input<T>(0), boxes = call.input<T>(1);
  const int64_t each = points.size(1), count = boxes.size(1);
  auto* containers = call.scratch<Container<T>>(boxes.size(0) * count);
  for (int64_t i = 0; i < boxes.size(0) * count; ++i) containers[i] = Container<T>(&boxes[7 * i]);
  call.parallel_for(points.size(0) * each, 4096 / (count + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t point = begin; point < end; ++point) {
      const Container<T>* box = containers + point / each * count;
      for (int64_t i = 0; i < count; ++i)
        if (!found(point, i, box[i].contains(&points[3 * point]))) break;
    }
  });
}

}  // namespace opbridge_vision
