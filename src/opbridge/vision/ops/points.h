// Clouds of points.
#pragma once

#include <cmath>
#include <cstdint>

#include "opbridge.h"

namespace opbridge_vision {

template <class T>
T squared_distance(const T* a, const T* b, int64_t axes) {
  T sum = 0;
  for (int64_t k = 0; k < axes; ++k) sum += (a[k] - b[k]) * (a[k] - b[k]);
  return sum;
}

// Checks inputs 0 and 1 of sizes (batch, queries, axes) and (batch, points, axes).
inline void check_clouds(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 3, "queries must have sizes (batch, queries, axes), not ", call.sizes(0));
  call.check(call.rank(1) == 3 && call.size(1, 0) == call.size(0, 0) && call.size(1, 2) == call.size(0, 2),
             "points must have sizes (", call.size(0, 0), ", points, ", call.size(0, 2), "), not ", call.sizes(1));
}

// A grid of cells in a range of x, y and z.
template <class T>
struct Grid {
  T low[3], size[3];
  int64_t counts[3];

  explicit Grid(const opbridge::Call& call) {
    const auto sizes = call.attribute_floats("voxel_size"), range = call.attribute_floats("point_range");
    for (int k = 0; k < 3; ++k) {
      low[k] = static_cast<T>(range[k]);
      size[k] = static_cast<T>(sizes[k]);
      counts[k] = std::llround((range[3 + k] - range[k]) / sizes[k]);
    }
  }

  // Writes the cell as z, y, x, and returns whether the point is inside; otherwise it writes -1.
  bool cell(const T* point, int64_t* zyx) const {
    bool inside = true;
    for (int k = 0; k < 3; ++k) {
      const T at = std::floor((point[k] - low[k]) / size[k]);
      // Also false for NaN.
      inside = inside && at >= 0 && at < static_cast<T>(counts[k]);
      zyx[2 - k] = inside ? static_cast<int64_t>(at) : 0;
    }
    if (!inside) zyx[0] = zyx[1] = zyx[2] = -1;
    return inside;
  }
};

inline void check_grid(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 2 && call.size(0, 1) >= 3, "points must have sizes (points, 3 or more), not ", call.sizes(0));
  const auto sizes = call.attribute_floats("voxel_size");
  call.check(sizes.size() == 3 && call.attribute_floats("point_range").size() == 6,
             "voxel_size must have three numbers, and point_range six");
  for (double size : sizes) call.check(size > 0, "voxel_size must be positive");
}

}  // namespace opbridge_vision
