// Products and triangular systems of blocks in row-major memory, which take most of the time of a factorization.
#pragma once

#include <algorithm>
#include <cstring>

#include "opbridge.h"

namespace opbridge_linalg {

using opbridge::Call;

// Runs a step of an algorithm on the host's threads for one large matrix, or serially for one of many matrices.
struct Parallel {
  const Call& call;

  template <class Body>
  void operator()(int64_t total, int64_t grain, const Body& body) const {
    call.parallel_for(total, grain, body);
  }
};
struct Serial {
  template <class Body>
  void operator()(int64_t total, int64_t, const Body& body) const {
    if (total > 0) body(int64_t(0), total);
  }
};

// Calls body(loop, number, scratch) for each of `count` matrices, with `size` elements of scratch memory each.
template <class T, class Body>
void for_each_matrix(Call& call, int64_t count, int64_t size, const Body& body) {
  if (count == 0) return;
  if (count == 1) return body(Parallel{call}, int64_t(0), call.scratch<T>(size));
  constexpr int64_t pieces = 64;
  const int64_t grain = (count + pieces - 1) / pieces;
  T* scratch = call.scratch<T>((count + grain - 1) / grain * size);
  call.parallel_for((count + grain - 1) / grain, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece)
      for (int64_t number = piece * grain; number < std::min(count, (piece + 1) * grain); ++number)
        body(Serial(), number, scratch + piece * size);
  });
}

// The elements of a product are computed in tiles of this number of rows and columns, which are held in registers.
constexpr int tile_rows = 6;
#ifdef __AVX__
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif
template <class T>
constexpr int64_t vector_size = vector_bytes / sizeof(T);
template <class T>
constexpr int64_t tile_columns = 2 * vector_size<T>;
template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(vector_bytes)));
};

// The scalar product, computed with as many partial sums as two vector registers have elements.
template <class T>
T dot(const T* x, const T* y, int64_t count) {
  using Lane = typename Vector<T>::type;
  constexpr int64_t width = vector_size<T>;
  Lane sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * width <= count; i += 2 * width)
    for (int part = 0; part < 2; ++part) {
      Lane left, right;
      std::memcpy(&left, x + i + part * width, sizeof(Lane));
      std::memcpy(&right, y + i + part * width, sizeof(Lane));
      sums[part] += left * right;
    }
  T values[width], sum = 0;
  sums[0] += sums[1];
  std::memcpy(values, sums, sizeof(values));
  for (int64_t k = 0; k < width; ++k) sum += values[k];
  for (; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

// x += factor y.
template <class T>
void add_multiple(T* __restrict x, T factor, const T* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] += factor * y[i];
}

inline int64_t rounded_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// The number of elements in the packed form of a depth x columns matrix.
template <class T>
int64_t packed_size(int64_t depth, int64_t columns) {
  return depth * rounded_up(columns, tile_columns<T>);
}

// Copies element(row, column) of a depth x columns matrix into tiles: all rows of the first columns, then of the next.
template <class T, class Loop, class Element>
void pack(const Loop& loop, T* packed, int64_t depth, int64_t columns, const Element& element) {
  constexpr int64_t width = tile_columns<T>;
  loop(rounded_up(columns, width) / width, 16, [=](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile)
      for (int64_t row = 0; row < depth; ++row)
        for (int64_t i = 0; i < width; ++i) {
          const int64_t column = tile * width + i;
          packed[(tile * depth + row) * width + i] = column < columns ? element(row, column) : T(0);
        }
  });
}

// c -= a b for one tile: a is rows x depth, b is packed, c has `columns` columns.
template <int rows, class T>
inline void subtract_tile(T* c, int64_t c_stride, const T* a, int64_t a_stride, const T* b, int64_t depth,
                          int64_t columns) {
  using Lane = typename Vector<T>::type;
  Lane sums[rows][2] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Lane pair[2];
    std::memcpy(pair, b + k * tile_columns<T>, sizeof(pair));
    for (int row = 0; row < rows; ++row) {
      sums[row][0] += a[row * a_stride + k] * pair[0];
      sums[row][1] += a[row * a_stride + k] * pair[1];
    }
  }
  for (int row = 0; row < rows; ++row) {
    T values[tile_columns<T>];
    std::memcpy(values, sums[row], sizeof(values));
    if (columns == tile_columns<T>)
      for (int64_t i = 0; i < tile_columns<T>; ++i) c[row * c_stride + i] -= values[i];
    else
      for (int64_t i = 0; i < columns; ++i) c[row * c_stride + i] -= values[i];
  }
}

// c -= a b: c is rows x columns, a is rows x depth, b is packed. Only the first limit(row) columns of a row are used.
template <class T, class Loop, class Limit>
void subtract_product(const Loop& loop, T* c, int64_t c_stride, const T* a, int64_t a_stride, const T* b, int64_t rows,
                      int64_t columns, int64_t depth, const Limit& limit) {
  constexpr int64_t width = tile_columns<T>;
  // All rows at a time, so that a tile of b stays in the cache.
  loop(rounded_up(columns, width) / width, 1 + 200000 / (1 + rows * width * depth), [=](int64_t begin, int64_t end) {
    for (int64_t column = begin * width; column < std::min(columns, end * width); column += width) {
      const T* tile = b + column * depth;
      const int64_t count = std::min(width, columns - column);
      for (int64_t row = 0; row < rows; row += tile_rows) {
        const int64_t last = std::min(rows, row + tile_rows);
        if (column >= limit(last - 1)) continue;
        T* out = c + row * c_stride + column;
        const T* left = a + row * a_stride;
        if (last - row == tile_rows) subtract_tile<tile_rows>(out, c_stride, left, a_stride, tile, depth, count);
        else
          for (int64_t i = 0; i < last - row; ++i)
            subtract_tile<1>(out + i * c_stride, c_stride, left + i * a_stride, a_stride, tile, depth, count);
      }
    }
  });
}

// Solves a x = b in place, where a (rows x rows) is triangular and small, and x has `columns` columns.
template <class T, class Loop>
void solve_block(const Loop& loop, const T* a, int64_t a_stride, T* x, int64_t x_stride, int64_t rows, int64_t columns,
                 bool upper, bool unit) {
  constexpr int64_t width = 64;
  loop(rounded_up(columns, width) / width, 1 + 20000 / (1 + rows * rows * width), [=](int64_t begin, int64_t end) {
    const int64_t first = begin * width, count = std::min(columns, end * width) - first;
    for (int64_t step = 0; step < rows; ++step) {
      const int64_t row = upper ? rows - 1 - step : step;
      T* target = x + row * x_stride + first;
      for (int64_t k = upper ? row + 1 : 0; k < (upper ? rows : row); ++k) {
        const T factor = a[row * a_stride + k];
        const T* source = x + k * x_stride + first;
        for (int64_t i = 0; i < count; ++i) target[i] -= factor * source[i];
      }
      if (unit) continue;
      const T diagonal = a[row * a_stride + row];
      for (int64_t i = 0; i < count; ++i) target[i] /= diagonal;
    }
  });
}

// The transpose of a rows x columns matrix.
template <class T, class Loop>
void transpose(const Loop& loop, const T* in, T* out, int64_t rows, int64_t columns) {
  constexpr int64_t width = 16;
  loop(rounded_up(columns, width) / width, 1 + 1000 / (1 + rows), [=](int64_t begin, int64_t end) {
    for (int64_t block = begin * width; block < std::min(columns, end * width); block += width)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = block; column < std::min(columns, block + width); ++column)
          out[column * rows + row] = in[row * columns + column];
  });
}

// The batch sizes: all except the last two.
inline opbridge::Sizes batch_of(opbridge::SizeSpan sizes) {
  opbridge::Sizes batch;
  for (int64_t axis = 0; axis + 2 < sizes.size(); ++axis) batch.push_back(sizes[axis]);
  return batch;
}

inline void check_square(opbridge::ShapeCall& call) {
  call.check(call.rank(0) >= 2 && call.size(0, -1) == call.size(0, -2), "expected square matrices, got sizes ",
             call.sizes(0));
}

// The index of a matrix in a tensor that is broadcast to these batch sizes.
inline int64_t broadcast_number(int64_t number, opbridge::SizeSpan sizes, opbridge::SizeSpan own) {
  int64_t result = 0, stride = 1;
  for (int64_t axis = sizes.size() - 3; axis >= 0; --axis) {
    const int64_t own_axis = axis - (sizes.size() - own.size());
    const int64_t index = number % sizes[axis];
    number /= sizes[axis];
    if (own_axis < 0) continue;
    if (own[own_axis] != 1) result += index * stride;
    stride *= own[own_axis];
  }
  return result;
}

}  // namespace opbridge_linalg
