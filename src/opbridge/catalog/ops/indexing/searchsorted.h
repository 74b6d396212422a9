// Binary search of values in sorted rows; the steps are those of PyTorch (aten/src/ATen/native/Bucketization.cpp), so that
// the results agree for rows that are not sorted and for NaN too.
#include "opbridge.h"

namespace search_sorted {

void shape(opbridge::ShapeCall& call) { call.set_output(0, call.sizes(1)); }

template <class T>
void run(opbridge::Call& call) {
  const auto rows = call.input<T>(0), values = call.input<T>(1);
  const auto places = call.output<int64_t>(0);
  if (values.count() == 0) return;
  const bool after_equal = call.attribute_int("right") != 0, is_shared = rows.rank() == 1;
  const int64_t length = rows.size(-1), in_row = is_shared ? values.count() : values.size(-1);
  call.parallel_for(values.count(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      const T* row = rows.data() + (is_shared ? 0 : position / in_row * length);
      const opbridge::compute_t<T> value = values[position];
      int64_t first = 0, last = length;
      while (first < last) {
        const int64_t middle = first + (last - first) / 2;
        const bool stops = after_equal ? row[middle] > value : row[middle] >= value;
        if (stops) last = middle;
        else first = middle + 1;
      }
      places[position] = first;
    }
  });
}

}  // namespace search_sorted

OPBRIDGE_OPERATOR(search_sorted::run, search_sorted::shape,
                  "opbridge::SearchSorted(T rows, T values, int right) -> int64 places",
                  opbridge::types<float, double, int32_t, int64_t>)
