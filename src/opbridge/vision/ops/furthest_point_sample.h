// Points that are far from each other (PointNet++, arXiv:1706.02413).
#include <algorithm>
#include <limits>

#include "opbridge.h"
#include "points.h"

namespace opbridge_vision {

inline void furthest_point_sample_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 3 && call.size(0, 1) > 0, "points must have sizes (batch, points, axes), not ",
             call.sizes(0));
  const int64_t count = call.attribute_int("num_points");
  call.check(count >= 0, "num_points is ", count);
  call.set_output(0, {call.size(0, 0), count});
}

template <class T>
void furthest_point_sample(opbridge::Call& call) {
  const auto points = call.input<T>(0);
  const auto chosen = call.output<int64_t>(0);
  const int64_t clouds = points.size(0), count = points.size(1), axes = points.size(2), most = chosen.size(1);
  T* distances = call.scratch<T>(clouds * count);
  std::fill(distances, distances + clouds * count, std::numeric_limits<T>::infinity());
  call.parallel_for(clouds, 1, [&](int64_t begin, int64_t end) {
    for (int64_t cloud = begin; cloud < end; ++cloud) {
      const T* point = &points[cloud * count * axes];
      T* nearest = distances + cloud * count;
      int64_t last = 0;
      for (int64_t place = 0; place < most; ++place) {
        chosen[cloud * most + place] = last;
        const T* newest = point + last * axes;
        for (int64_t i = 0; i < count; ++i)
          nearest[i] = std::min(nearest[i], squared_distance(point + i * axes, newest, axes));
        last = std::max_element(nearest, nearest + count) - nearest;
      }
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::furthest_point_sample, opbridge_vision::furthest_point_sample_shape,
                  "opbridge_vision::furthest_point_sample(T points, int num_points) -> int64 chosen",
                  opbridge::types<float, double>)
