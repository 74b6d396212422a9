// The points of each voxel of a cloud (VoxelNet, arXiv:1711.06396).
#include <algorithm>

#include "opbridge.h"
#include "points.h"

namespace opbridge_vision {

inline void hard_voxelize_shape(opbridge::ShapeCall& call) {
  check_grid(call);
  const int64_t most = call.attribute_int("max_points");
  call.check(most > 0 && call.attribute_int("max_voxels") >= 0, "max_points must be positive, and max_voxels not negative");
  call.set_output(0, {opbridge::data_dependent, most, call.size(0, 1)});
  call.set_output(1, {opbridge::data_dependent, 3});
  call.set_output(2, {opbridge::data_dependent});
}

template <class T>
void hard_voxelize(opbridge::Call& call) {
  const auto points = call.input<T>(0);
  const Grid<T> grid(call);
  const int64_t count = points.size(0), features = points.size(1);
  const int64_t most = call.attribute_int("max_points"), most_voxels = call.attribute_int("max_voxels");
  // A table of voxels with open addressing, whose memory depends on the points and not on the grid.
  uint64_t slots = 4;
  while (slots < 2 * static_cast<uint64_t>(count)) slots *= 2;
  int64_t* table = call.scratch<int64_t>(static_cast<int64_t>(slots));
  std::fill(table, table + slots, int64_t(-1));
  int64_t* voxel_of = call.scratch<int64_t>(count);
  int64_t* cells = call.scratch<int64_t>(3 * std::min(count, most_voxels));
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t cell[3];
    voxel_of[i] = -1;
    if (!grid.cell(&points[i * features], cell)) continue;
    const int64_t number = (cell[0] * grid.counts[1] + cell[1]) * grid.counts[0] + cell[2];
    // Multiplicative hashing (Knuth), with the golden ratio.
    uint64_t slot = (static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15u >> 20) & (slots - 1);
    for (; table[slot] >= 0; slot = (slot + 1) & (slots - 1))
      if (std::equal(cell, cell + 3, cells + 3 * table[slot])) break;
    if (table[slot] < 0) {
      if (found == most_voxels) continue;
      std::copy(cell, cell + 3, cells + 3 * found);
      table[slot] = found++;
    }
    voxel_of[i] = table[slot];
  }
  const auto voxels = call.allocate_output<T>(0, {found, most, features});
  const auto places = call.allocate_output<int64_t>(1, {found, 3});
  const auto sizes = call.allocate_output<int64_t>(2, {found});
  std::fill(voxels.data(), voxels.data() + voxels.count(), T(0));
  std::fill(sizes.data(), sizes.data() + found, int64_t(0));
  std::copy(cells, cells + 3 * found, places.data());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t voxel = voxel_of[i];
    if (voxel < 0 || sizes[voxel] == most) continue;
    std::copy(&points[i * features], &points[i * features] + features, &voxels[(voxel * most + sizes[voxel]++) * features]);
  }
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::hard_voxelize, opbridge_vision::hard_voxelize_shape,
                  "opbridge_vision::hard_voxelize(T points, float[] voxel_size, float[] point_range, int max_points,"
                  " int max_voxels) -> (T voxels, int64 places, int64 sizes)",
                  opbridge::types<float, double>)
