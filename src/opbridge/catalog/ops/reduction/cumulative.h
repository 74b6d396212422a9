// Cumulative products and log-sum-exps along an axis.
#include <algorithm>
#include <limits>

#include "opbridge.h"

namespace cumulative {

constexpr int64_t lanes = 32, tile = 32;

// Runs `Sum` in each of up to 32 neighbouring rows or columns at once. Rows are transposed in tiles.
template <class Sum, class T>
void run(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const auto y = call.output<T>(0);
  if (x.count() == 0) return;
  const int axis = opbridge::normalized_axis(call.attribute_int("dim"), x.rank());
  int64_t inner = 1;
  for (int other = axis + 1; other < x.rank(); ++other) inner *= x.size(other);
  const int64_t length = x.size(axis), outer = x.count() / (length * inner);
  const int64_t width = inner == 1 ? outer : inner, blocks = (width + lanes - 1) / lanes;
  call.parallel_for((inner == 1 ? 1 : outer) * blocks, 1 + 8192 / (length * lanes), [&](int64_t begin, int64_t end) {
    T in[tile * lanes] = {}, out[tile * lanes];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t lane = block % blocks * lanes, count = std::min(lanes, width - lane);
      const int64_t start = inner == 1 ? lane * length : block / blocks * length * inner + lane;
      Sum sum;
      for (int64_t step = 0; step < length; step += tile) {
        const int64_t steps = std::min(tile, length - step), first = start + step * inner;
        if (inner == 1)
          for (int64_t i = 0; i < count; ++i)
            for (int64_t k = 0; k < steps; ++k) in[k * lanes + i] = x[first + i * length + k];
        else
          for (int64_t k = 0; k < steps; ++k) std::copy_n(x.data() + first + k * inner, count, in + k * lanes);
        for (int64_t k = 0; k < steps; ++k) sum.add(in + k * lanes, out + k * lanes);
        if (inner == 1)
          for (int64_t i = 0; i < count; ++i)
            for (int64_t k = 0; k < steps; ++k) y[first + i * length + k] = out[k * lanes + i];
        else
          for (int64_t k = 0; k < steps; ++k) std::copy_n(out + k * lanes, count, y.data() + first + k * inner);
      }
    }
  });
}

// In float64 for float32, as in PyTorch.
template <class T>
struct Product {
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, T>;
  using Unsigned = std::conditional_t<std::is_same_v<T, int32_t>, uint32_t, uint64_t>;
  using Factor = std::conditional_t<std::is_integral_v<T>, Unsigned, Wide>;
  Factor product[lanes];

  Product() { std::fill_n(product, lanes, Factor(1)); }
  void add(const T* in, T* out) {
    for (int64_t i = 0; i < lanes; ++i) {
      product[i] *= static_cast<Factor>(in[i]);
      out[i] = static_cast<T>(product[i]);
    }
  }
};

// A sum of exponentials that is scaled by the largest of them.
template <class T>
struct LogSum {
  T largest[lanes], total[lanes];

  LogSum() {
    std::fill_n(largest, lanes, -std::numeric_limits<T>::infinity());
    std::fill_n(total, lanes, T(0));
  }
  void add(const T* in, T* out) {
    for (int64_t i = 0; i < lanes; ++i) {
      const T value = in[i], before = largest[i], difference = value - before;
      const bool is_larger = value > before;
      // The difference of two infinities would be NaN.
      const T distance = value == before ? T(0) : is_larger ? -difference : difference;
      const T part = opbridge::exp(distance);
      total[i] = is_larger ? total[i] * part + 1 : total[i] + part;
      largest[i] = is_larger ? value : before;
      out[i] = largest[i] + opbridge::log(total[i]);
    }
  }
};

void shape(opbridge::ShapeCall& call) { call.set_output(0, call.sizes(0)); }

// Four rows at a time, since each product waits for the one before.
template <class T, int rows>
void products_of_rows(const T* x, T* y, int64_t length) {
  typename Product<T>::Factor product[rows];
  std::fill_n(product, rows, 1);
  for (int64_t k = 0; k < length; ++k)
    for (int row = 0; row < rows; ++row) {
      product[row] *= static_cast<typename Product<T>::Factor>(x[row * length + k]);
      y[row * length + k] = static_cast<T>(product[row]);
    }
}

template <class T>
void product(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const int axis = opbridge::normalized_axis(call.attribute_int("dim"), x.rank());
  if (x.count() == 0 || axis != x.rank() - 1) return run<Product<T>, T>(call);
  const auto y = call.output<T>(0);
  const int64_t length = x.size(axis), rows = x.count() / length;
  call.parallel_for((rows + 3) / 4, 1 + 4096 / length, [&](int64_t begin, int64_t end) {
    int64_t row = 4 * begin;
    const int64_t last = std::min(4 * end, rows);
    for (; row + 4 <= last; row += 4)
      products_of_rows<T, 4>(x.data() + row * length, y.data() + row * length, length);
    for (; row < last; ++row) products_of_rows<T, 1>(x.data() + row * length, y.data() + row * length, length);
  });
}

template <class T>
void log_sum(opbridge::Call& call) {
  run<LogSum<T>, T>(call);
}

}  // namespace cumulative

OPBRIDGE_OPERATOR(cumulative::product, cumulative::shape, "opbridge::CumProd(T x, int dim) -> T y",
                  opbridge::types<float, double, int32_t, int64_t>)
OPBRIDGE_OPERATOR(cumulative::log_sum, cumulative::shape, "opbridge::LogCumSumExp(T x, int dim) -> T y",
                  opbridge::types<float, double>)
