// The overlap of convex quadrilaterals: x and y of four corners, in order.
#include <algorithm>
#include <cmath>

#include "opbridge.h"
#include "overlap.h"

namespace opbridge_vision {

template <class T>
struct Quadrilateral {
  T x[4], y[4], left, right, bottom, top, area;

  // Relative to a point, which is more precise near it.
  Quadrilateral relative(T to_x, T to_y) const {
    Quadrilateral moved = *this;
    for (int i = 0; i < 4; ++i) {
      moved.x[i] -= to_x;
      moved.y[i] -= to_y;
    }
    moved.left -= to_x;
    moved.right -= to_x;
    return moved;
  }

  // The lowest and the highest y at `at`; infinite, and the lowest above the highest, beside the quadrilateral.
  void extent(T at, T& lowest, T& highest) const {
    lowest = INFINITY;
    highest = -INFINITY;
    for (int i = 0; i < 4; ++i) {
      const T x0 = x[i], way = x[(i + 1) % 4] - x0, share = (at - x0) / (way == 0 ? T(1) : way);
      if (way == 0 || !(share >= 0 && share <= 1)) continue;
      const T height = y[i] + share * (y[(i + 1) % 4] - y[i]);
      lowest = std::min(lowest, height);
      highest = std::max(highest, height);
    }
  }
};

template <class T>
Quadrilateral<T> quadrilateral(const T* numbers) {
  Quadrilateral<T> made;
  for (int i = 0; i < 4; ++i) {
    made.x[i] = numbers[2 * i];
    made.y[i] = numbers[2 * i + 1];
  }
  made.left = *std::min_element(made.x, made.x + 4);
  made.right = *std::max_element(made.x, made.x + 4);
  made.bottom = *std::min_element(made.y, made.y + 4);
  made.top = *std::max_element(made.y, made.y + 4);
  made.area = std::abs((made.x[2] - made.x[0]) * (made.y[3] - made.y[1]) -
                       (made.x[3] - made.x[1]) * (made.y[2] - made.y[0])) / 2;
  return made;
}

// The height of the intersection is piecewise linear along x, with bends only at corners and where two edges cross. Between
// bends, the mean height is that in the middle. Coinciding edges are no special case.
template <class T>
T shared_area_of_quadrilaterals(const Quadrilateral<T>& first, const Quadrilateral<T>& second) {
  if (!(first.left < second.right && second.left < first.right) || first.bottom > second.top || second.bottom > first.top)
    return 0;
  const Quadrilateral<T> a = first.relative(first.x[0], first.y[0]), b = second.relative(first.x[0], first.y[0]);
  const T left = std::max(a.left, b.left), right = std::min(a.right, b.right);
  T bends[26] = {left, right};
  int count = 2;
  const auto add = [&](T x) {
    if (x > left && x < right) bends[count++] = x;
  };
  for (int i = 0; i < 4; ++i) {
    add(a.x[i]);
    add(b.x[i]);
    const T way_x = a.x[(i + 1) % 4] - a.x[i], way_y = a.y[(i + 1) % 4] - a.y[i];
    for (int j = 0; j < 4; ++j) {
      const T other_x = b.x[(j + 1) % 4] - b.x[j], other_y = b.y[(j + 1) % 4] - b.y[j];
      const T turn = way_x * other_y - way_y * other_x;
      const T share = ((b.x[j] - a.x[i]) * other_y - (b.y[j] - a.y[i]) * other_x) / (turn == 0 ? T(1) : turn);
      if (share > 0 && share < 1) add(a.x[i] + share * way_x);
    }
  }
  std::sort(bends, bends + count);
  T area = 0;
  for (int k = 0; k + 1 < count; ++k) {
    T low, high, other_low, other_high;
    const T middle = (bends[k] + bends[k + 1]) / 2;
    a.extent(middle, low, high);
    b.extent(middle, other_low, other_high);
    area += (bends[k + 1] - bends[k]) * std::max(std::min(high, other_high) - std::max(low, other_low), T(0));
  }
  return area;
}

inline void box_iou_quadri_shape(opbridge::ShapeCall& call) { overlap_shape(call, 8); }

template <class T>
void box_iou_quadri(opbridge::Call& call) {
  overlaps<Quadrilateral<T>, T>(call, quadrilateral<T>, shared_area_of_quadrilaterals<T>);
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::box_iou_quadri, opbridge_vision::box_iou_quadri_shape,
                  "opbridge_vision::box_iou_quadri(T boxes1, T boxes2, string mode='iou', int aligned=0) -> T overlaps",
                  opbridge::types<float, double>)
