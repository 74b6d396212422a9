// The median, and the most frequent element, of each row.
#include <algorithm>

#include "opbridge.h"

namespace median_and_mode {

void shape(opbridge::ShapeCall& call) {
  opbridge::Sizes sizes;
  const int axis = call.rank(0) == 0 ? -1 : opbridge::normalized_axis(call.attribute_int("dim"), call.rank(0));
  for (int other = 0; other < call.rank(0); ++other)
    if (other != axis) sizes.push_back(call.size(0, other));
    else if (call.attribute_int("keepdim") != 0) sizes.push_back(1);
  call.set_output(0, sizes);
  call.set_output(1, sizes);
}

template <class T>
struct Chosen {
  T value;
  int64_t index;
};

// choose(row, memory) is the value and the index of one row; memory has room for the row twice.
template <class T, class Choose>
void run(opbridge::Call& call, const Choose& choose) {
  const auto x = call.input<T>(0);
  const auto values = call.output<T>(0);
  const auto indices = call.output<int64_t>(1);
  if (values.count() == 0) return;
  const int axis = x.rank() == 0 ? 0 : opbridge::normalized_axis(call.attribute_int("dim"), x.rank());
  const int64_t length = x.rank() == 0 ? 1 : x.size(axis);
  call.check(length > 0, "the axis ", axis, " has no elements");
  int64_t inner = 1;
  for (int other = axis + 1; other < x.rank(); ++other) inner *= x.size(other);
  const int64_t grain = std::max(1 + 1024 / length, values.count() / 64);
  const int64_t pieces = (values.count() + grain - 1) / grain;
  auto* memory = call.scratch<T>(pieces * 3 * length);
  call.parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      T* own = memory + piece * 3 * length;
      for (int64_t i = piece * grain; i < std::min((piece + 1) * grain, values.count()); ++i) {
        const T* row = x.data() + i / inner * length * inner + i % inner;
        if (inner > 1) {
          for (int64_t k = 0; k < length; ++k) own[2 * length + k] = row[k * inner];
          row = own + 2 * length;
        }
        const Chosen<T> chosen = choose(row, own, length);
        values[i] = chosen.value;
        indices[i] = chosen.index;
      }
    }
  });
}

// Writes the elements that are numbers, in order, and returns how many these are.
template <class T>
int64_t copy_numbers(const T* row, int64_t length, T* numbers) {
  if constexpr (std::is_integral_v<T>) {
    std::copy_n(row, length, numbers);
    return length;
  }
  int64_t count = 0;
  for (int64_t i = 0; i < length; ++i) {
    numbers[count] = row[i];
    count += row[i] == row[i] ? 1 : 0;
  }
  return count;
}

template <class T>
int64_t first_nan(const T* row) {
  int64_t index = 0;
  while (row[index] == row[index]) ++index;
  return index;
}

// Of many elements, those between two elements of a sorted sample contain the k-th smallest, but for bad luck.
template <class T>
T smallest(T* numbers, int64_t count, int64_t k, T* spare) {
  constexpr int64_t most = 256;
  const int64_t sample = std::min(most, count / 16);
  if (sample >= 16) {
    T some[most];
    for (int64_t i = 0; i < sample; ++i) some[i] = numbers[i * (count / sample)];
    std::sort(some, some + sample);
    const int64_t margin = sample < 64 ? 8 : sample < most ? 12 : 24, place = k * sample / count;
    const bool is_low = place < margin, is_high = place + margin >= sample;
    const T low = some[is_low ? 0 : place - margin], high = some[is_high ? 0 : place + margin];
    int64_t below = 0, inside = 0;
    for (int64_t i = 0; i < count; ++i) {
      const T value = numbers[i];
      const bool is_below = !is_low & (value < low), is_above = !is_high & (value > high);
      below += is_below ? 1 : 0;
      spare[inside] = value;
      inside += is_below | is_above ? 0 : 1;
    }
    if (k >= below && k < below + inside) {
      std::nth_element(spare, spare + (k - below), spare + inside);
      return spare[k - below];
    }
  }
  std::nth_element(numbers, numbers + k, numbers + count);
  return numbers[k];
}

template <class T>
void median(opbridge::Call& call) {
  const bool skips_nan = call.attribute_int("skips_nan") != 0;
  run<T>(call, [=](const T* row, T* memory, int64_t length) -> Chosen<T> {
    const int64_t count = copy_numbers(row, length, memory);
    if (skips_nan ? count == 0 : count < length) {
      const int64_t index = first_nan(row);
      return {row[index], index};
    }
    const T value = smallest(memory, count, (count - 1) / 2, memory + length);
    return {value, std::find(row, row + length, value) - row};
  });
}

// Counts the elements of each value, if all are integers in a small range. Returns the smallest of the most frequent.
template <class T>
T most_frequent_integer(const T* row, int64_t length, T low, T* counts) {
  T most = 0, best = 0;
  for (int64_t i = 0; i < length; ++i) ++counts[row[i] - low];
  for (int64_t i = 0; i < length; ++i)
    if (counts[i] > most) {
      most = counts[i];
      best = static_cast<T>(i);
    }
  return low + best;
}

template <class T>
T most_frequent(T* numbers, int64_t count) {
  std::sort(numbers, numbers + count);
  T best = numbers[0];
  int64_t longest = 0, start = 0;
  for (int64_t i = 1; i <= count; ++i)
    if (i == count || numbers[i] != numbers[start]) {
      if (i - start > longest) {
        longest = i - start;
        best = numbers[start];
      }
      start = i;
    }
  return best;
}

template <class T>
void mode(opbridge::Call& call) {
  run<T>(call, [](const T* row, T* memory, int64_t length) -> Chosen<T> {
    T value;
    bool is_counted = false;
    if constexpr (std::is_integral_v<T>) {
      T low = row[0], high = row[0];
      for (int64_t i = 0; i < length; ++i) {
        low = std::min(low, row[i]);
        high = std::max(high, row[i]);
      }
      is_counted = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) < static_cast<uint64_t>(length);
      if (is_counted) {
        std::fill_n(memory, length, T(0));
        value = most_frequent_integer(row, length, low, memory);
      }
    }
    if (!is_counted) {
      const int64_t count = copy_numbers(row, length, memory);
      if (count == 0) return {row[0], 0};
      value = most_frequent(memory, count);
    }
    int64_t index = length - 1;
    while (row[index] != value) --index;
    return {value, index};
  });
}

}  // namespace median_and_mode

OPBRIDGE_OPERATOR(median_and_mode::median, median_and_mode::shape,
                  "opbridge::Median(T x, int skips_nan, int dim, int keepdim) -> (T values, int64 indices)",
                  opbridge::types<float, double, int32_t, int64_t>)
OPBRIDGE_OPERATOR(median_and_mode::mode, median_and_mode::shape,
                  "opbridge::Mode(T x, int dim, int keepdim) -> (T values, int64 indices)",
                  opbridge::types<float, double, int32_t, int64_t>)
