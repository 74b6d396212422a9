// The number, or the sum of the weights, of each integer from 0 to the largest.
#include <algorithm>

#include "opbridge.h"

namespace bincount {

void shape(opbridge::ShapeCall& call) { call.set_output(0, {opbridge::data_dependent}); }

// Calls add(counts, position) for each position of x, whose element is the index into counts.
template <class Count, class I, class Add>
void run(opbridge::Call& call, const opbridge::Tensor<const I>& x, const Add& add) {
  I low = 0, high = -1;
  call.parallel_for(x.count(), x.count(), [&](int64_t begin, int64_t end) {
    I lowest = 0, highest = -1;
    for (int64_t i = begin; i < end; ++i) {
      lowest = x[i] < lowest ? x[i] : lowest;
      highest = x[i] > highest ? x[i] : highest;
    }
    low = lowest;
    high = highest;
  });
  call.check(low >= 0, "an element is ", static_cast<int64_t>(low), ", but must not be negative");
  const int64_t size = std::max(call.attribute_int("minlength"), static_cast<int64_t>(high) + 1);
  const auto counts = call.allocate_output<Count>(0, {size});
  std::fill_n(counts.data(), size, Count(0));
  for (int64_t i = 0; i < x.count(); ++i) counts[x[i]] += add(i);
}

template <class I>
void count(opbridge::Call& call) {
  run<int64_t, I>(call, call.input<I>(0), [](int64_t) { return int64_t(1); });
}

template <class I, class T>
void weigh(opbridge::Call& call) {
  const auto weights = call.input<T>(1);
  run<T, I>(call, call.input<I>(0), [&](int64_t i) { return weights[i]; });
}

}  // namespace bincount

OPBRIDGE_OPERATOR(bincount::count, bincount::shape, "opbridge::BinCount(I x, int minlength) -> int64 counts",
                  opbridge::types<int32_t, int64_t>)
OPBRIDGE_OPERATOR(bincount::weigh, bincount::shape,
                  "opbridge::WeightedBinCount(I x, T weights, int minlength) -> T sums",
                  opbridge::types<int32_t, int64_t>, opbridge::types<float, double>)
