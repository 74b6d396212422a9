// The sum, mean or maximum over the rows of a table that the indices of each bag select; 0 for an empty bag.
#include <algorithm>

#include "opbridge.h"

namespace embedding_bag {

enum Mode { sum = 0, mean = 1, maximum = 2 };

int64_t bag_count(const opbridge::Arguments& call) {
  return call.size(2, 0) - (call.attribute_int("include_last_offset") != 0 ? 1 : 0);
}

// The second and the later results are for the backward pass, which gets less for sums.
void shape(opbridge::ShapeCall& call) {
  const int64_t bags = bag_count(call), mode = call.attribute_int("mode");
  call.set_output(0, {bags, call.size(0, 1)});
  call.set_output(1, {call.size(1, 0)});
  call.set_output(2, {mode == sum ? call.size(2, 0) : bags});
  if (mode == maximum) call.set_output(3, {bags, call.size(0, 1)});
  else call.set_output(3, {mode == sum ? call.size(2, 0) : bags});
}

template <class T>
void add(const T* row, const T* weight, int64_t columns, T* total) {
  if (weight != nullptr)
    for (int64_t i = 0; i < columns; ++i) total[i] += row[i] * *weight;
  else
    for (int64_t i = 0; i < columns; ++i) total[i] += row[i];
}

template <class T, class I>
void keep_largest(const T* row, I index, bool is_first, int64_t columns, T* largest, I* which) {
  for (int64_t i = 0; i < columns; ++i)
    if (is_first || row[i] > largest[i]) {
      largest[i] = row[i];
      if (which != nullptr) which[i] = index;
    }
}

template <class T, class I>
void run(opbridge::Call& call) {
  const auto table = call.input<T>(0);
  const auto indices = call.input<I>(1), offsets = call.input<I>(2);
  const T* weights = call.has_input(3) ? call.input<T>(3).data() : nullptr;
  const auto result = call.output<T>(0);
  I* bag_of = call.has_output(1) ? call.output<I>(1).data() : nullptr;
  I* sizes = call.has_output(2) ? call.output<I>(2).data() : nullptr;
  I* which = call.has_output(3) ? call.output<I>(3).data() : nullptr;
  const int64_t mode = call.attribute_int("mode"), padding = call.attribute_int("padding_idx");
  const int64_t bags = bag_count(call), rows = table.size(0), columns = table.size(1);
  if (mode != maximum && which != nullptr) std::fill_n(which, call.output<I>(3).count(), I(0));
  if (mode == sum && sizes != nullptr) std::fill_n(sizes, call.output<I>(2).count(), I(0));
  call.parallel_for(bags, 1 + 256 / (columns + 1), [&](int64_t begin, int64_t end) {
    for (int64_t bag = begin; bag < end; ++bag) {
      T* out = result.data() + bag * columns;
      I* places = mode == maximum && which != nullptr ? which + bag * columns : nullptr;
      std::fill_n(out, columns, T(0));
      if (places != nullptr) std::fill_n(places, columns, I(0));
      const int64_t first = offsets[bag], last = bag + 1 < bags ? offsets[bag + 1] : indices.count();
      call.check(first >= 0 && first <= last && last <= indices.count(), "the offsets do not ascend from 0 to ",
                 indices.count(), " at bag ", bag);
      int64_t size = 0;
      for (int64_t position = first; position < last; ++position) {
        if (bag_of != nullptr) bag_of[position] = static_cast<I>(bag);
        const I index = indices[position];
        call.check(index >= 0 && index < rows, "index ", index, " is outside of the table's ", rows, " rows");
        if (index == padding) continue;
        const T* row = table.data() + index * columns;
        if (mode == maximum) keep_largest(row, index, size == 0, columns, out, places);
        else add(row, weights != nullptr ? weights + position : nullptr, columns, out);
        ++size;
      }
      if (mode == mean && size > 0)
        for (int64_t i = 0; i < columns; ++i) out[i] /= static_cast<T>(size);
      if (mode != sum && sizes != nullptr) sizes[bag] = static_cast<I>(size);
      if (mode == mean && which != nullptr) which[bag] = static_cast<I>(size);
    }
  });
}

}  // namespace embedding_bag

OPBRIDGE_OPERATOR(embedding_bag::run, embedding_bag::shape,
                  "opbridge::EmbeddingBag(T table, I indices, I offsets, T? weights, int mode, int padding_idx, "
                  "int include_last_offset) -> (T result, I? bag_of, I? sizes, I? which)",
                  opbridge::types<float, double>, opbridge::types<int32_t, int64_t>)
