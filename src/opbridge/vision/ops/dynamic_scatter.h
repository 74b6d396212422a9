// The features of each voxel, reduced from those of its points (MVF, arXiv:1910.06528).
#include <algorithm>
#include <utility>
#include <vector>

#include "opbridge.h"

namespace opbridge_vision {

inline void dynamic_scatter_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 2, "features must have sizes (points, channels), not ", call.sizes(0));
  call.check(call.rank(1) == 2 && call.size(1, 0) == call.size(0, 0), "places must have sizes (", call.size(0, 0),
             ", axes), not ", call.sizes(1));
  const auto reduce = call.attribute_string("reduce");
  call.check(reduce == "max" || reduce == "sum" || reduce == "mean", "reduce must be 'max', 'sum' or 'mean'");
  call.set_output(0, {opbridge::data_dependent, call.size(0, 1)});
  call.set_output(1, {opbridge::data_dependent, call.size(1, 1)});
}

// Sorts the rows `order` by their voxels, digit by digit of the number of a voxel. False if the grid has too many voxels.
template <class Place>
bool sort_by_numbers(opbridge::Call& call, const Place& place, int64_t axes, int64_t* order, int64_t count) {
  constexpr int digit = 11;
  constexpr int64_t most = int64_t(1) << 44;
  int64_t voxels = 1;
  std::vector<int64_t> extents;
  for (int64_t k = 0; k < axes; ++k) {
    int64_t last = 0;
    for (int64_t i = 0; i < count; ++i) last = std::max(last, place(order[i])[k]);
    if (last >= most / voxels) return false;
    extents.push_back(last + 1);
    voxels *= last + 1;
  }
  struct Row {
    int64_t number, row;
  };
  Row *from = call.scratch<Row>(count), *to = call.scratch<Row>(count);
  for (int64_t i = 0; i < count; ++i) {
    int64_t number = 0;
    for (int64_t k = 0; k < axes; ++k) number = number * extents[static_cast<size_t>(k)] + place(order[i])[k];
    from[i] = {number, order[i]};
  }
  for (int shift = 0; voxels >> shift > 0; shift += digit) {
    std::vector<int64_t> begins((size_t(1) << digit) + 1, 0);
    const auto of = [=](const Row& row) { return static_cast<size_t>(row.number >> shift & ((1 << digit) - 1)); };
    for (int64_t i = 0; i < count; ++i) ++begins[of(from[i]) + 1];
    for (size_t k = 1; k < begins.size(); ++k) begins[k] += begins[k - 1];
    for (int64_t i = 0; i < count; ++i) to[begins[of(from[i])]++] = from[i];
    std::swap(from, to);
  }
  for (int64_t i = 0; i < count; ++i) order[i] = from[i].row;
  return true;
}

template <class T>
void dynamic_scatter(opbridge::Call& call) {
  const auto features = call.input<T>(0);
  const auto places = call.input<int64_t>(1);
  const auto reduce = call.attribute_string("reduce");
  const int64_t channels = features.size(1), axes = places.size(1);
  int64_t *order = call.scratch<int64_t>(features.size(0)), *begins = call.scratch<int64_t>(features.size(0) + 1);
  int64_t count = 0;
  const auto place = [&](int64_t row) { return &places[row * axes]; };
  for (int64_t i = 0; i < features.size(0); ++i)
    if (std::all_of(place(i), place(i) + axes, [](int64_t number) { return number >= 0; })) order[count++] = i;
  if (!sort_by_numbers(call, place, axes, order, count))
    std::stable_sort(order, order + count, [&](int64_t i, int64_t j) {
      return std::lexicographical_compare(place(i), place(i) + axes, place(j), place(j) + axes);
    });
  int64_t voxels = 0;
  for (int64_t k = 0; k < count; ++k)
    if (k == 0 || !std::equal(place(order[k]), place(order[k]) + axes, place(order[k - 1]))) begins[voxels++] = k;
  begins[voxels] = count;
  const auto reduced = call.allocate_output<T>(0, {voxels, channels});
  const auto cells = call.allocate_output<int64_t>(1, {voxels, axes});
  const bool is_max = reduce == "max", is_mean = reduce == "mean";
  call.parallel_for(voxels, 256, [&](int64_t begin, int64_t end) {
    for (int64_t voxel = begin; voxel < end; ++voxel) {
      const int64_t first = begins[voxel], last = begins[voxel + 1];
      T* out = &reduced[voxel * channels];
      std::copy(place(order[first]), place(order[first]) + axes, &cells[voxel * axes]);
      std::copy(&features[order[first] * channels], &features[order[first] * channels] + channels, out);
      for (int64_t k = first + 1; k < last; ++k) {
        const T* row = &features[order[k] * channels];
        for (int64_t c = 0; c < channels; ++c)
          // NaN is the largest, as in PyTorch.
          out[c] = !is_max ? out[c] + row[c] : row[c] > out[c] || row[c] != row[c] ? row[c] : out[c];
      }
      for (int64_t c = 0; is_mean && c < channels; ++c) out[c] /= static_cast<T>(last - first);
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::dynamic_scatter, opbridge_vision::dynamic_scatter_shape,
                  "opbridge_vision::dynamic_scatter(T features, int64 places, string reduce='max')"
                  " -> (T reduced, int64 voxels)",
                  opbridge::types<float, double>)
