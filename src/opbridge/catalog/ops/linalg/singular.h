// Singular values and vectors: bidiagonal form, then implicit QR steps (Golub & Van Loan, "Matrix Computations", 4th
// edition, 8.6).
#pragma once

#include <utility>

#include "reflections.h"

namespace opbridge_linalg {

// The diagonal and the elements above it.
template <class T>
struct Bidiagonal {
  std::vector<T> diagonal, above;
};

// The vectors of reflections, one per row, and their factors; empty if no vectors are requested.
template <class T>
struct Reflections {
  std::vector<T> rows, taus;

  Reflections(int64_t count, int64_t size) : rows(count * size), taus(count) {}
  T* data() { return rows.empty() ? nullptr : rows.data(); }
  void put(const T* v, int64_t size, int64_t place, int64_t length, T tau) {
    if (rows.empty()) return;
    std::copy_n(v, length, rows.data() + place * (size + 1));
    taus[place] = tau;
  }
};

// Reduces a (m x n, where m >= n) to bidiagonal form, and overwrites it.
template <class T>
Bidiagonal<T> bidiagonal_form(T* a, int64_t m, int64_t n, Reflections<T>& left, Reflections<T>& right) {
  Bidiagonal<T> form{std::vector<T>(n), std::vector<T>(n)};
  std::vector<T> u(m), w(n);
  for (int64_t k = 0; k < n; ++k) {
    const int64_t rows = m - k, columns = n - k - 1;
    for (int64_t i = 0; i < rows; ++i) u[i] = a[(k + i) * n + k];
    const Reflection<T> down = reflect(u.data(), rows);
    form.diagonal[k] = down.left;
    left.put(u.data(), m, k, rows, down.tau);
    if (columns == 0) break;
    T* v = a + k * n + k + 1;
    std::fill_n(w.data(), columns, T(0));
    for (int64_t i = 0; i < rows; ++i) add_multiple(w.data(), u[i], v + i * n, columns);
    add_multiple(v, -down.tau, w.data(), columns);
    const Reflection<T> across = reflect(v, columns);
    form.above[k] = across.left;
    right.put(v, n, k + 1, columns, across.tau);
    for (int64_t i = 1; i < rows; ++i) {
      T* line = v + i * n;
      add_multiple(line, -down.tau * u[i], w.data(), columns);
      add_multiple(line, -across.tau * dot(line, v, columns), v, columns);
    }
  }
  return form;
}

template <class T>
bool is_negligible(T x, T one, T other) {
  return std::abs(x) <= std::numeric_limits<T>::epsilon() * (std::abs(one) + std::abs(other)) +
                            std::numeric_limits<T>::min();
}

// If d[place] is zero, makes the element above the diagonal in its row zero too; for the last place, the element in
// its column.
template <class T>
void clear_zero(Bidiagonal<T>& form, int64_t place, int64_t start, int64_t end, Rotations<T>& left,
                Rotations<T>& right) {
  T* d = form.diagonal.data();
  T* e = form.above.data();
  const bool is_last = place == end;
  T moved = std::exchange(e[is_last ? end - 1 : place], T(0));
  for (int64_t k = is_last ? end - 1 : place + 1; is_last ? k >= start : k <= end; k += is_last ? -1 : 1) {
    T length;
    const Rotation<T> rotation = rotation_of(d[k], moved, length);
    d[k] = length;
    (is_last ? right : left).add(rotation, k, place);
    if (k == (is_last ? start : end)) break;
    T& next = e[is_last ? k - 1 : k];
    moved = 0;
    rotation.turn(next, moved);
  }
}

// One step from `start` to `end`, with the shift from the last two rows.
template <class T>
void singular_step(Bidiagonal<T>& form, int64_t start, int64_t end, Rotations<T>& left, Rotations<T>& right) {
  T* d = form.diagonal.data();
  T* e = form.above.data();
  T scale = 0;
  for (const T x : {d[start], e[start], d[end - 1], e[end - 1], d[end]}) scale = std::max(scale, std::abs(x));
  const T high = d[end - 1] / scale, link = e[end - 1] / scale, low = d[end] / scale;
  const T half = ((high + low) * (high - low) + link * link) / 2;
  const T product = low * link * (low * link);
  const T root = std::copysign(std::sqrt(half * half + product), half);
  const T shift = product == 0 ? T(0) : product / (half + root);
  const T first = d[start] / scale;
  T x = (first + low) * (first - low) + shift, y = first * (e[start] / scale);
  for (int64_t k = start; k < end; ++k) {
    T length;
    Rotation<T> rotation = rotation_of(x, y, length);
    if (k > start) e[k - 1] = length;
    right.add(rotation, k, k + 1);
    rotation.turn(d[k], e[k]);
    y = 0;
    rotation.turn(y, d[k + 1]);
    rotation = rotation_of(d[k], y, length);
    left.add(rotation, k, k + 1);
    d[k] = length;
    rotation.turn(e[k], d[k + 1]);
    x = e[k];
    y = 0;
    if (k + 1 < end) rotation.turn(y, e[k + 1]);
  }
}

// Reduces the matrix to singular values of either sign on the diagonal; false after too many steps.
template <class T>
bool diagonalize(Bidiagonal<T>& form, Rotations<T>& left, Rotations<T>& right) {
  const std::vector<T>& d = form.diagonal;
  std::vector<T>& e = form.above;
  const int64_t n = static_cast<int64_t>(d.size());
  int64_t steps_left = 60 * n;
  for (int64_t end = n - 1; end > 0;) {
    int64_t start = end;
    while (start > 0 && !is_negligible(e[start - 1], d[start - 1], d[start])) --start;
    if (start == end) {
      --end;
      continue;
    }
    if (start > 0) e[start - 1] = 0;
    if (steps_left-- == 0) return false;
    int64_t zero = end;
    while (zero >= start && !is_negligible(d[zero], zero > start ? e[zero - 1] : T(0), zero < end ? e[zero] : T(0)))
      --zero;
    if (zero >= start) clear_zero(form, zero, start, end, left, right);
    else singular_step(form, start, end, left, right);
  }
  left.apply();
  right.apply();
  return true;
}

// Copies the rows of `from` in the given order to the `count` rows or columns of `to`.
template <class T>
void write_rows(const T* from, const std::vector<int64_t>& order, int64_t size, int64_t count, bool as_columns, T* to) {
  for (int64_t k = 0; k < count; ++k) {
    const T* row = from + (k < static_cast<int64_t>(order.size()) ? order[k] : k) * size;
    for (int64_t i = 0; i < size; ++i) to[as_columns ? i * count + k : k * size + i] = row[i];
  }
}

// The singular values of a (m x n) in descending order; and, if has_vectors, the left singular vectors as columns and
// the right ones as rows, with `kept` vectors on the longer side. NaN if an element is not finite.
template <bool has_vectors, class T>
void singular_values(const T* a, int64_t m, int64_t n, int64_t kept, T* left, T* values, T* right) {
  const bool is_wide = m < n;
  const int64_t rows = std::max(m, n), count = std::min(m, n);
  std::vector<T> work(a, a + m * n);
  const T scale = scale_of(a, m * n);
  if (is_wide) transpose(Serial(), a, work.data(), m, n);
  for (T& element : work) element /= scale;
  Reflections<T> tall(has_vectors ? kept : 0, rows), flat(has_vectors ? count : 0, count);
  Bidiagonal<T> form = bidiagonal_form(work.data(), rows, count, tall, flat);
  if (has_vectors) {
    multiply_reflections(tall.rows.data(), tall.taus.data(), kept, rows);
    multiply_reflections(flat.rows.data(), flat.taus.data(), count, count);
  }
  Rotations<T> of_tall(tall.data(), kept, rows), of_flat(flat.data(), count, count);
  if (std::isnan(scale) || !diagonalize(form, of_tall, of_flat)) {
    constexpr T nan = std::numeric_limits<T>::quiet_NaN();
    std::fill_n(values, count, nan);
    if (!has_vectors) return;
    std::fill_n(left, m * (is_wide ? count : kept), nan);
    std::fill_n(right, n * (is_wide ? kept : count), nan);
    return;
  }
  for (int64_t k = 0; k < count && has_vectors; ++k)
    for (int64_t i = 0; i < count && form.diagonal[k] < 0; ++i) flat.rows[k * count + i] *= -1;
  for (T& value : form.diagonal) value = std::abs(value);
  std::vector<int64_t> order = ascending(form.diagonal);
  std::reverse(order.begin(), order.end());
  for (int64_t k = 0; k < count; ++k) values[k] = form.diagonal[order[k]] * scale;
  if (!has_vectors) return;
  write_rows(is_wide ? flat.data() : tall.data(), order, m, is_wide ? count : kept, true, left);
  write_rows(is_wide ? tall.data() : flat.data(), order, n, is_wide ? kept : count, false, right);
}

}  // namespace opbridge_linalg
