// The voxel of each point of a cloud.
#include "opbridge.h"
#include "points.h"

namespace opbridge_vision {

inline void dynamic_voxelize_shape(opbridge::ShapeCall& call) {
  check_grid(call);
  call.set_output(0, {call.size(0, 0), 3});
}

template <class T>
void dynamic_voxelize(opbridge::Call& call) {
  const auto points = call.input<T>(0);
  const auto voxels = call.output<int64_t>(0);
  const Grid<T> grid(call);
  call.parallel_for(points.size(0), 2048, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) grid.cell(&points[i * points.size(1)], &voxels[3 * i]);
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::dynamic_voxelize, opbridge_vision::dynamic_voxelize_shape,
                  "opbridge_vision::dynamic_voxelize(T points, float[] voxel_size, float[] point_range) -> int64 voxels",
                  opbridge::types<float, double>)
