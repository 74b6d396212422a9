// Histograms of equal bins.
#include <algorithm>
#include <cmath>

#include "opbridge.h"

namespace histogram {

void shape(opbridge::ShapeCall& call) {
  const int64_t bins = call.attribute_int("bins");
  call.check(bins > 0, "bins is ", bins, ", but must be positive");
  call.set_output(0, {bins});
  if (call.output_count() > 1) call.set_output(1, {bins + 1});
}

template <class T>
struct Range {
  T low = 0, high = 1;
};

// The given bounds, or those of the elements. Equal ones become the middle of a range of twice the margin.
template <class T>
Range<T> range_of(opbridge::Call& call, const opbridge::Tensor<const T>& x, int bounds, T margin) {
  Range<T> range;
  if (call.has_input(bounds)) {
    range = {call.input<T>(bounds)[0], call.input<T>(bounds)[1]};
  } else if (x.count() > 0) {
    call.parallel_for(x.count(), x.count(), [&](int64_t begin, int64_t end) {
      T low = x[0], high = x[0];
      for (int64_t i = begin; i < end; ++i) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
      }
      range = {low, high};
    });
  }
  call.check(std::isfinite(range.low) && std::isfinite(range.high), "the range of the elements is not finite");
  if (range.low == range.high) range = {range.low - margin, range.high + margin};
  return range;
}

// The sums of the weights, in float64. With edges, the computed bin is corrected by one.
template <class T, bool has_edges>
double* counted(opbridge::Call& call, const opbridge::Tensor<const T>& x, const T* weights, Range<T> range, const T* edges,
                int64_t bins) {
  constexpr int64_t block = 256;
  call.check(bins < INT32_MAX, "there are too many bins: ", bins);
  const int64_t grain = std::max<int64_t>(16384, (x.count() + 15) / 16), pieces = (x.count() + grain - 1) / grain;
  const int32_t last = static_cast<int32_t>(bins) - 1;
  double* sums = call.scratch<double>((pieces + 1) * (bins + 1));
  std::fill_n(sums, (pieces + 1) * (bins + 1), 0.0);
  call.parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    const T low = range.low, high = range.high, factor = static_cast<T>(bins), width = high - low;
    const T* limits = edges;
    int32_t places[block];
    for (int64_t piece = begin; piece < end; ++piece) {
      double* own = sums + (piece + 1) * (bins + 1);
      const int64_t stop = std::min((piece + 1) * grain, x.count());
      for (int64_t start = piece * grain; start < stop; start += block) {
        const T* values = x.data() + start;
        const int64_t count = std::min(block, stop - start);
        for (int64_t i = 0; i < count; ++i) {
          const T value = values[i];
          const bool is_inside = (value >= low) & (value <= high);
          const T position = (is_inside ? value - low : T(0)) * factor / width;
          int32_t place = std::min(std::max(static_cast<int32_t>(position), 0), last);
          if constexpr (has_edges) {
            place += (value >= limits[place + 1] ? 1 : 0) - (value < limits[place] ? 1 : 0);
            place = std::min(std::max(place, 0), last);
          }
          places[i] = is_inside ? place : last + 1;
        }
        if (weights == nullptr)
          for (int64_t i = 0; i < count; ++i) own[places[i]] += 1;
        else
          for (int64_t i = 0; i < count; ++i) own[places[i]] += static_cast<double>(weights[start + i]);
      }
    }
  });
  for (int64_t piece = 1; piece <= pieces; ++piece)
    for (int64_t bin = 0; bin < bins; ++bin) sums[bin] += sums[piece * (bins + 1) + bin];
  return sums;
}

template <class T>
void of_count(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const T* weights = call.has_input(1) ? call.input<T>(1).data() : nullptr;
  const auto result = call.output<T>(0), edges = call.output<T>(1);
  const int64_t bins = call.attribute_int("bins");
  const Range<T> range = range_of(call, x, 2, T(0.5));
  // From both ends, so that the last edge is exact.
  const T step = (range.high - range.low) / static_cast<T>(bins);
  for (int64_t i = 0; i <= bins; ++i)
    edges[i] = i < (bins + 1) / 2 ? range.low + static_cast<T>(i) * step : range.high - static_cast<T>(bins - i) * step;
  const double* sums = counted<T, true>(call, x, weights, range, edges.data(), bins);
  std::copy_n(sums, bins, result.data());
  if (call.attribute_int("density") == 0) return;
  double total = 0;
  for (int64_t i = 0; i < bins; ++i) total += sums[i];
  for (int64_t i = 0; i < bins; ++i) result[i] = result[i] / (static_cast<T>(total) * (edges[i + 1] - edges[i]));
}

template <class T>
void of_range(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const int64_t bins = call.attribute_int("bins");
  const Range<T> range = range_of(call, x, 1, T(1));
  std::copy_n(counted<T, false>(call, x, nullptr, range, nullptr, bins), bins, call.output<T>(0).data());
}

}  // namespace histogram

OPBRIDGE_OPERATOR(histogram::of_count, histogram::shape,
                  "opbridge::Histogram(T x, T? weight, T? bounds, int bins, int density) -> (T counts, T edges)",
                  opbridge::types<float, double>)
OPBRIDGE_OPERATOR(histogram::of_range, histogram::shape, "opbridge::HistC(T x, T? bounds, int bins) -> T counts",
                  opbridge::types<float, double>)
