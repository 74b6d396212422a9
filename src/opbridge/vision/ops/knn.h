// The nearest points of a cloud.
#include <cmath>

#include "opbridge.h"
#include "points.h"

namespace opbridge_vision {

inline void knn_shape(opbridge::ShapeCall& call) {
  check_clouds(call);
  const int64_t k = call.attribute_int("k");
  call.check(k > 0 && k <= call.size(1, 1), k, " nearest of ", call.size(1, 1), " points");
  for (int i = 0; i < 2; ++i) call.set_output(i, {call.size(0, 0), call.size(0, 1), k});
}

template <class T>
void knn(opbridge::Call& call) {
  const auto queries = call.input<T>(0), points = call.input<T>(1);
  const auto distances = call.output<T>(0);
  const auto positions = call.output<int64_t>(1);
  const int64_t count = points.size(1), axes = points.size(2), k = distances.size(2), each = queries.size(1);
  call.parallel_for(queries.size(0) * each, 32768 / (count * (axes + 1) + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t query = begin; query < end; ++query) {
      const T *at = &queries[query * axes], *cloud = &points[query / each * count * axes];
      // The nearest so far, in order; of equal distances, the first point comes first.
      T* nearest = &distances[query * k];
      int64_t *place = &positions[query * k], found = 0;
      for (int64_t i = 0; i < count; ++i) {
        const T distance = squared_distance(at, cloud + i * axes, axes);
        if (found == k && !(distance < nearest[k - 1])) continue;
        int64_t rank = found < k ? found++ : k - 1;
        for (; rank > 0 && distance < nearest[rank - 1]; --rank) {
          nearest[rank] = nearest[rank - 1];
          place[rank] = place[rank - 1];
        }
        nearest[rank] = distance;
        place[rank] = i;
      }
      for (int64_t i = 0; i < k; ++i) nearest[i] = std::sqrt(nearest[i]);
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::knn, opbridge_vision::knn_shape,
                  "opbridge_vision::knn(T queries, T points, int k) -> (T distances, int64 positions)",
                  opbridge::types<float, double>)
