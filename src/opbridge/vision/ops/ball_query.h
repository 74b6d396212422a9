// The points around each query (PointNet++, arXiv:1706.02413).
#include <algorithm>

#include "opbridge.h"
#include "points.h"

namespace opbridge_vision {

inline void ball_query_shape(opbridge::ShapeCall& call) {
  check_clouds(call);
  const int64_t most = call.attribute_int("sample_num");
  call.check(most > 0, "sample_num must be positive");
  call.set_output(0, {call.size(0, 0), call.size(0, 1), most});
}

template <class T>
void ball_query(opbridge::Call& call) {
  const auto queries = call.input<T>(0), points = call.input<T>(1);
  const auto positions = call.output<int64_t>(0);
  const int64_t count = points.size(1), axes = points.size(2), most = positions.size(2), each = queries.size(1);
  const double low = call.attribute_float("min_radius"), high = call.attribute_float("max_radius");
  const T least = static_cast<T>(low * low), limit = static_cast<T>(high * high);
  call.parallel_for(queries.size(0) * each, 32768 / (count * (axes + 1) + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t query = begin; query < end; ++query) {
      const T *at = &queries[query * axes], *cloud = &points[query / each * count * axes];
      int64_t *row = &positions[query * most], found = 0;
      for (int64_t i = 0; i < count && found < most; ++i) {
        const T distance = squared_distance(at, cloud + i * axes, axes);
        if (distance == 0 || (distance >= least && distance < limit)) row[found++] = i;
      }
      std::fill(row + found, row + most, found > 0 ? row[0] : 0);
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::ball_query, opbridge_vision::ball_query_shape,
                  "opbridge_vision::ball_query(T queries, T points, float min_radius, float max_radius, int sample_num)"
                  " -> int64 positions",
                  opbridge::types<float, double>)
