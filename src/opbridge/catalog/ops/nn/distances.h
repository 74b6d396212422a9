// Distances between the rows of a matrix.
#include <algorithm>
#include <cmath>
#include <limits>

#include "opbridge.h"

namespace distances {

constexpr int64_t lanes = 64;

void shape(opbridge::ShapeCall& call) {
  const int64_t rows = call.size(0, 0);
  call.set_output(0, {rows * (rows - 1) / 2});
}

// Columns is (columns, rows): one row is compared with 64 others at once, one column after the other.
template <class T, class Add>
void to_later_rows(const T* x, const T* columns, int64_t row, int64_t rows, int64_t width, T* out, const Add& add) {
  for (int64_t first = row + 1; first < rows; first += lanes) {
    const int64_t count = std::min(lanes, rows - first);
    T sums[lanes] = {};
    for (int64_t column = 0; column < width; ++column) {
      const T own = x[row * width + column];
      const T* others = columns + column * rows + first;
      if (count == lanes)
        for (int64_t i = 0; i < lanes; ++i) sums[i] = add(sums[i], own - others[i]);
      else
        for (int64_t i = 0; i < count; ++i) sums[i] = add(sums[i], own - others[i]);
    }
    std::copy_n(sums, count, out + first - row - 1);
  }
}

template <class T>
void of_pairs(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const auto y = call.output<T>(0);
  if (y.count() == 0) return;
  const int64_t rows = x.size(0), width = x.size(1);
  const double p = call.attribute_float("p");
  T* columns = call.scratch<T>(rows * width);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < width; ++column) columns[column * rows + row] = x[row * width + column];
  call.parallel_for(rows - 1, 1 + 16384 / (rows * (width + 1)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* out = y.data() + row * (2 * rows - row - 1) / 2;
      const auto fill = [&](const auto& add) { to_later_rows(x.data(), columns, row, rows, width, out, add); };
      if (p == 0) {
        // NaN, too, is unequal, and stays NaN.
        fill([](T sum, T difference) { return sum + (difference == 0 ? T(0) : difference == difference ? T(1) : difference); });
      } else if (p == 1) {
        fill([](T sum, T difference) { return sum + std::abs(difference); });
      } else if (p == 2) {
        fill([](T sum, T difference) { return sum + difference * difference; });
        for (int64_t i = 0; i < rows - row - 1; ++i) out[i] = std::sqrt(out[i]);
      } else {
        fill([](T sum, T difference) {
          const T size = std::abs(difference);
          return size != size ? size : size > sum ? size : sum;
        });
      }
    }
  });
}

}  // namespace distances

OPBRIDGE_OPERATOR(distances::of_pairs, distances::shape, "opbridge::PDist(T x, float p) -> T distances",
                  opbridge::types<float, double>)
