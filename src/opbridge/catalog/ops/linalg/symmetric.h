// Eigenvalues and eigenvectors of symmetric matrices: tridiagonal form, then implicit QR steps (Golub & Van Loan,
// "Matrix Computations", 4th edition, 8.3).
#pragma once

#include "reflections.h"

namespace opbridge_linalg {

// The diagonal and the elements next to it.
template <class T>
struct Tridiagonal {
  std::vector<T> diagonal, off_diagonal;
};

// Reduces a to tridiagonal form; reads and overwrites its upper triangle. If q is given, its rows from 1 on receive the
// vectors of the reflections.
template <class T>
Tridiagonal<T> tridiagonal_form(T* a, int64_t n, T* q, T* taus) {
  Tridiagonal<T> form{std::vector<T>(n), std::vector<T>(n)};
  std::vector<T> p(n);
  taus[0] = 0;
  for (int64_t k = 0; k < n; ++k) {
    form.diagonal[k] = a[k * n + k];
    const int64_t size = n - k - 1;
    if (size == 0) break;
    T* v = a + k * n + k + 1;
    T* corner = v + n;
    const Reflection<T> reflection = reflect(v, size);
    form.off_diagonal[k] = reflection.left;
    taus[k + 1] = reflection.tau;
    if (q != nullptr) std::copy_n(v, size, q + (k + 1) * (n + 1));
    if (reflection.tau == 0) continue;
    std::fill_n(p.data(), size, T(0));
    for (int64_t i = 0; i < size; ++i) {
      const T* line = corner + i * (n + 1);
      p[i] += line[0] * v[i] + dot(line + 1, v + i + 1, size - i - 1);
      add_multiple(p.data() + i + 1, v[i], line + 1, size - i - 1);
    }
    for (int64_t i = 0; i < size; ++i) p[i] *= reflection.tau;
    add_multiple(p.data(), -reflection.tau / 2 * dot(p.data(), v, size), v, size);
    for (int64_t i = 0; i < size; ++i) {
      add_multiple(corner + i * (n + 1), -v[i], p.data() + i, size - i);
      add_multiple(corner + i * (n + 1), -p[i], v + i, size - i);
    }
  }
  return form;
}

// One step from `start` to `end`, with Wilkinson's shift.
template <class T>
void symmetric_step(Tridiagonal<T>& form, int64_t start, int64_t end, Rotations<T>& rotations) {
  T* d = form.diagonal.data();
  T* e = form.off_diagonal.data();
  const T ratio = (d[end - 1] - d[end]) / 2 / e[end - 1];
  const T shift = d[end] - e[end - 1] / (ratio + std::copysign(std::sqrt(1 + ratio * ratio), ratio));
  T x = d[start] - shift, y = e[start];
  for (int64_t k = start; k < end; ++k) {
    T length;
    const Rotation<T> rotation = rotation_of(x, y, length);
    if (k > start) e[k - 1] = length;
    T above = e[k];
    rotation.turn(d[k], e[k]);
    rotation.turn(above, d[k + 1]);
    rotation.turn(d[k], above);
    rotation.turn(e[k], d[k + 1]);
    x = e[k];
    y = 0;
    if (k + 1 < end) rotation.turn(y, e[k + 1]);
    rotations.add(rotation, k, k + 1);
  }
}

// Reduces the matrix to eigenvalues on the diagonal; false after too many steps.
template <class T>
bool diagonalize(Tridiagonal<T>& form, Rotations<T>& rotations) {
  const int64_t n = static_cast<int64_t>(form.diagonal.size());
  int64_t steps_left = 30 * n;
  for (int64_t end = n - 1; end > 0;) {
    int64_t start = end;
    for (; start > 0; --start) {
      const T size = std::abs(form.diagonal[start - 1]) + std::abs(form.diagonal[start]);
      const T limit = std::numeric_limits<T>::epsilon() * size + std::numeric_limits<T>::min();
      if (std::abs(form.off_diagonal[start - 1]) <= limit) break;
    }
    if (start == end) {
      --end;
      continue;
    }
    if (steps_left-- == 0) return false;
    symmetric_step(form, start, end, rotations);
  }
  rotations.apply();
  return true;
}

// The eigenvalues of a in ascending order, and, if requested, the eigenvectors as columns. NaN if an element is not
// finite. Only one triangle is read.
template <class T>
void symmetric_eigen(const T* a, int64_t n, bool upper, T* values, T* vectors) {
  std::vector<T> work(n * n), q(vectors == nullptr ? 0 : n * n), taus(n);
  for (int64_t row = 0; row < n; ++row)
    for (int64_t column = row; column < n; ++column)
      work[row * n + column] = upper ? a[row * n + column] : a[column * n + row];
  const T scale = scale_of(work.data(), n * n);
  for (T& element : work) element /= scale;
  bool is_done = !std::isnan(scale);
  Tridiagonal<T> form;
  if (is_done) {
    T* rows = vectors == nullptr ? nullptr : q.data();
    form = tridiagonal_form(work.data(), n, rows, taus.data());
    if (rows != nullptr) multiply_reflections(rows, taus.data(), n, n);
    Rotations<T> rotations(rows, n, n);
    is_done = diagonalize(form, rotations);
  }
  if (!is_done) {
    std::fill_n(values, n, std::numeric_limits<T>::quiet_NaN());
    if (vectors != nullptr) std::fill_n(vectors, n * n, std::numeric_limits<T>::quiet_NaN());
    return;
  }
  const std::vector<int64_t> order = ascending(form.diagonal);
  for (int64_t k = 0; k < n; ++k) {
    values[k] = form.diagonal[order[k]] * scale;
    for (int64_t row = 0; row < n && vectors != nullptr; ++row) vectors[row * n + k] = q[order[k] * n + row];
  }
}

}  // namespace opbridge_linalg
