// The eigenvalues and eigenvectors of real matrices: Hessenberg form, Francis's double-shift QR steps, and back
// substitution (Golub & Van Loan, "Matrix Computations", 4th edition, 7.4 to 7.6; LAPACK's lahqr and trevc).
#include <complex>
#include <utility>

#include "reflections.h"

namespace opbridge_linalg {

void eig_shape(opbridge::ShapeCall& call) {
  check_square(call);
  opbridge::Sizes values = batch_of(call.sizes(0)), vectors = call.sizes(0);
  values.push_back(call.size(0, -1));
  values.push_back(2);
  vectors.push_back(2);
  call.set_output(0, values);
  call.set_output(1, vectors);
}

// Q H Q^T, where q holds Q^T.
template <class T>
struct Schur {
  int64_t n;
  std::vector<T> h, q;

  T& operator()(int64_t row, int64_t column) { return h[row * n + column]; }
  T operator()(int64_t row, int64_t column) const { return h[row * n + column]; }
};

// H has one diagonal below the main one.
template <class T>
void hessenberg_form(Schur<T>& schur) {
  const int64_t n = schur.n;
  std::vector<T> u(n), w(n), taus(n);
  for (int64_t k = 0; k + 1 < n; ++k) {
    const int64_t size = n - k - 1;
    for (int64_t i = 0; i < size; ++i) u[i] = std::exchange(schur(k + 1 + i, k), T(0));
    const Reflection<T> reflection = reflect(u.data(), size);
    const T tau = taus[k + 1] = reflection.tau;
    schur(k + 1, k) = reflection.left;
    std::copy_n(u.data(), size, schur.q.data() + (k + 1) * (n + 1));
    if (tau == 0) continue;
    T* corner = schur.h.data() + (k + 1) * (n + 1);
    std::fill_n(w.data(), size, T(0));
    for (int64_t i = 0; i < size; ++i) add_multiple(w.data(), u[i], corner + i * n, size);
    for (int64_t i = 0; i < size; ++i) add_multiple(corner + i * n, -tau * u[i], w.data(), size);
    for (int64_t row = 0; row < n; ++row) {
      T* line = schur.h.data() + row * n + k + 1;
      add_multiple(line, -tau * dot(line, u.data(), size), u.data(), size);
    }
  }
  multiply_reflections(schur.q.data(), taus.data(), n, n);
}

// A reflection of two or three rows, where v is (1, y, z).
template <class T>
void reflect_rows(T* __restrict first, T* __restrict second, T* __restrict third, T tau, T y, T z, int64_t count) {
  for (int64_t i = 0; i < count && third != nullptr; ++i) {
    const T sum = tau * (first[i] + y * second[i] + z * third[i]);
    first[i] -= sum;
    second[i] -= y * sum;
    third[i] -= z * sum;
  }
  for (int64_t i = 0; i < count && third == nullptr; ++i) {
    const T sum = tau * (first[i] + y * second[i]);
    first[i] -= sum;
    second[i] -= y * sum;
  }
}

// H A H for a reflection H of `size` rows from k on; below `last` the columns are zero.
template <class T>
void reflect_both(Schur<T>& schur, int64_t k, const T* v, T tau, int64_t size, int64_t last) {
  if (tau == 0) return;
  const int64_t n = schur.n;
  const T y = v[1], z = size == 3 ? v[2] : T(0);
  const auto by_rows = [=](T* first, int64_t count) {
    reflect_rows(first, first + n, size == 3 ? first + 2 * n : nullptr, tau, y, z, count);
  };
  by_rows(&schur(k, k), n - k);
  for (int64_t row = 0; row <= last; ++row) {
    T* line = &schur(row, k);
    const T sum = tau * (line[0] + y * line[1] + (size == 3 ? z * line[2] : T(0)));
    line[0] -= sum;
    line[1] -= y * sum;
    if (size == 3) line[2] -= z * sum;
  }
  by_rows(schur.q.data() + k * n, n);
}

// One double step from `start` to `end`, with exceptional shifts if the usual shifts have not converged.
template <class T>
void francis_step(Schur<T>& h, int64_t start, int64_t end, bool is_stuck) {
  T high = h(end - 1, end - 1), low = h(end, end), product = h(end, end - 1) * h(end - 1, end);
  if (is_stuck) {
    const T size = std::abs(h(end, end - 1)) + std::abs(h(end - 1, end - 2));
    high = low = low + T(0.75) * size;
    product = T(-0.4375) * size * size;
  }
  T v[3];
  int64_t first = end - 2;
  for (;; --first) {
    const T head = h(first, first), next = h(first + 1, first + 1), link = h(first + 1, first);
    const T size = std::abs(low - head) + std::abs(high - head) + std::abs(link) + std::sqrt(std::abs(product));
    v[0] = (low - head) * ((high - head) / size) - product / size + link / size * h(first, first + 1);
    v[1] = link / size * (next + head - low - high);
    v[2] = link / size * h(first + 2, first + 1);
    if (first == start) break;
    const T around = std::abs(h(first - 1, first - 1)) + std::abs(head) + std::abs(next);
    const T change = std::abs(h(first, first - 1)) * (std::abs(v[1]) + std::abs(v[2]));
    if (change <= std::numeric_limits<T>::epsilon() * std::abs(v[0]) * around) break;
  }
  for (int64_t k = first; k < end; ++k) {
    const int64_t size = std::min<int64_t>(3, end - k + 1);
    for (int64_t i = 0; i < size && k > first; ++i) v[i] = std::exchange(h(k + i, k - 1), T(0));
    const Reflection<T> reflection = reflect(v, size);
    if (k > first) h(k, k - 1) = reflection.left;
    else if (k > start) h(k, k - 1) *= 1 - reflection.tau;
    reflect_both(h, k, v, reflection.tau, size, std::min(end, k + 3));
  }
}

// Half the difference of the diagonal elements of a block of two rows, and the discriminant of its eigenvalues.
template <class T>
std::pair<T, T> block_roots(const Schur<T>& h, int64_t k) {
  const T half = (h(k, k) - h(k + 1, k + 1)) / 2;
  return {half, half * half + h(k, k + 1) * h(k + 1, k)};
}

// Makes a block of two rows triangular, if its eigenvalues are real.
template <class T>
void split_block(Schur<T>& h, int64_t k) {
  const auto [half, square] = block_roots(h, k);
  if (square < 0) return;
  T v[2] = {half + std::copysign(std::sqrt(square), half), h(k + 1, k)};
  const Reflection<T> reflection = reflect(v, 2);
  reflect_both(h, k, v, reflection.tau, 2, k + 1);
  h(k + 1, k) = 0;
}

// Reduces H to blocks of one row, or of two for pairs of complex eigenvalues; false after too many steps.
template <class T>
bool schur_form(Schur<T>& h) {
  hessenberg_form(h);
  int64_t steps = 0, steps_left = 30 * std::max<int64_t>(10, h.n);
  for (int64_t end = h.n - 1; end > 0;) {
    int64_t start = end;
    for (; start > 0; --start) {
      const T size = std::abs(h(start - 1, start - 1)) + std::abs(h(start, start));
      if (std::abs(h(start, start - 1)) <= std::numeric_limits<T>::epsilon() * (size > 0 ? size : T(1))) break;
    }
    if (start > 0) h(start, start - 1) = 0;
    if (end - start >= 2) {
      if (steps_left-- == 0) return false;
      francis_step(h, start, end, ++steps % 10 == 0);
      continue;
    }
    if (end > start) split_block(h, start);
    end = start - 1;
    steps = 0;
  }
  return true;
}

template <class T>
std::vector<std::complex<T>> schur_values(const Schur<T>& h) {
  std::vector<std::complex<T>> values(h.n);
  for (int64_t k = 0; k < h.n; ++k) {
    values[k] = h(k, k);
    if (k + 1 == h.n || h(k + 1, k) == 0) continue;
    const auto [half, square] = block_roots(h, k);
    values[k] = {h(k + 1, k + 1) + half, std::sqrt(-square)};
    values[k + 1] = std::conj(values[k]);
    ++k;
  }
  return values;
}

// Eigenvalues that are equal within rounding are treated as differing by the rounding error.
template <class T>
std::complex<T> apart(std::complex<T> difference) {
  constexpr T least = std::numeric_limits<T>::epsilon();
  return std::abs(difference.real()) + std::abs(difference.imag()) < least ? least : difference;
}

// Solves two equations with two unknowns by elimination with pivoting; the solution replaces the right side.
template <class T>
void solve_two(std::complex<T> a, T b, T c, std::complex<T> d, std::complex<T>& x, std::complex<T>& y) {
  std::complex<T> upper = b, lower = d, pivot = a, other = c;
  if (std::abs(a.real()) + std::abs(a.imag()) < std::abs(c)) {
    std::swap(upper, lower);
    std::swap(pivot, other);
    std::swap(x, y);
  }
  const std::complex<T> factor = other / pivot;
  y = (y - factor * x) / apart(lower - factor * upper);
  x = (x - upper * y) / pivot;
}

// The eigenvector of H for the eigenvalue of the block that ends with row `last`; complex ones have an imaginary part.
template <class T>
void back_substitute(const Schur<T>& h, std::complex<T> value, int64_t last, T* real, T* imaginary) {
  const auto put = [&](int64_t row, std::complex<T> x) {
    real[row] = x.real();
    if (imaginary != nullptr) imaginary[row] = x.imag();
  };
  const auto sum = [&](int64_t row, int64_t start) {
    const T* line = &h.h[row * h.n];
    const int64_t count = last - start + 1;
    return -std::complex<T>(dot(line + start, real + start, count),
                            imaginary == nullptr ? T(0) : dot(line + start, imaginary + start, count));
  };
  int64_t row = last - 1;
  put(last, T(1));
  if (imaginary != nullptr) {
    const bool is_lower = std::abs(h(last, row)) > std::abs(h(row, last));
    if (is_lower) put(row, (value - h(last, last)) / h(last, row));
    else {
      put(row, T(1));
      put(last, (value - h(row, row)) / h(row, last));
    }
    --row;
  }
  for (; row >= 0; --row) {
    const bool is_pair = row > 0 && h(row, row - 1) != 0;
    const std::complex<T> difference = h(row, row) - value;
    std::complex<T> x = sum(row, row + 1), y = 0;
    if (is_pair) {
      std::complex<T> above = sum(row - 1, row + 1);
      solve_two(h(row - 1, row - 1) - value, h(row - 1, row), h(row, row - 1), difference, above, x);
      put(row, x);
      put(--row, above);
      y = above;
    } else put(row, x = x / apart(difference));
    const T largest = std::max(std::abs(x), std::abs(y));
    if (!(std::numeric_limits<T>::epsilon() * largest * largest > 1)) continue;
    for (int64_t i = row; i <= last; ++i) {
      real[i] /= largest;
      if (imaginary != nullptr) imaginary[i] /= largest;
    }
  }
}

// The eigenvectors of any length as rows; for a pair, the real and the imaginary part are two rows.
template <class T>
std::vector<T> eigenvectors(const Schur<T>& h, const std::vector<std::complex<T>>& values) {
  const int64_t n = h.n;
  std::vector<T> inner(n * n), packed(packed_size<T>(n, n)), vectors(n * n);
  for (int64_t k = 0; k < n; ++k) {
    T* row = inner.data() + k * n;
    const bool is_pair = values[k].imag() != 0;
    back_substitute(h, values[k], k + is_pair, row, is_pair ? row + n : nullptr);
    k += is_pair;
  }
  pack(Serial(), packed.data(), n, n, [&](int64_t row, int64_t column) { return h.q[row * n + column]; });
  subtract_product(Serial(), vectors.data(), n, inner.data(), n, packed.data(), n, n, n, [=](int64_t) { return n; });
  return vectors;
}

// Eigenvalues and eigenvectors as pairs of numbers, the vectors as columns of length 1. NaN if an element of the
// matrix is not finite.
template <class T>
void eigen(const T* a, int64_t n, T* values, T* vectors) {
  const T scale = scale_of(a, n * n);
  Schur<T> schur{n, std::vector<T>(a, a + n * n), std::vector<T>(n * n)};
  for (T& element : schur.h) element /= scale;
  if (std::isnan(scale) || !schur_form(schur)) {
    std::fill_n(values, 2 * n, std::numeric_limits<T>::quiet_NaN());
    std::fill_n(vectors, 2 * n * n, std::numeric_limits<T>::quiet_NaN());
    return;
  }
  const std::vector<std::complex<T>> found = schur_values(schur);
  const std::vector<T> rows = eigenvectors(schur, found);
  for (int64_t k = 0; k < n; ++k) {
    values[2 * k] = found[k].real() * scale;
    values[2 * k + 1] = found[k].imag() * scale;
    // The second vector of a pair is the conjugate of the first.
    const T sign = found[k].imag() > 0 ? T(1) : found[k].imag() < 0 ? T(-1) : T(0);
    const T* real = rows.data() + (sign < 0 ? k - 1 : k) * n;
    const T* imaginary = sign == 0 ? real : real + n;
    const T length = std::sqrt(dot(real, real, n) + (sign == 0 ? T(0) : dot(imaginary, imaginary, n)));
    for (int64_t row = 0; row < n; ++row) {
      vectors[2 * (row * n + k)] = real[row] / length;
      vectors[2 * (row * n + k) + 1] = sign == 0 ? T(0) : sign * imaginary[row] / length;
    }
  }
}

template <class T>
void eig(Call& call) {
  const auto a = call.input<T>(0);
  const auto values = call.output<T>(0);
  const auto vectors = call.output<T>(1);
  const int64_t n = a.size(-1);
  if (a.count() == 0) return;
  call.parallel_for(a.count() / (n * n), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      eigen(a.data() + k * n * n, n, values.data() + 2 * k * n, vectors.data() + 2 * k * n * n);
  });
}

}  // namespace opbridge_linalg

OPBRIDGE_OPERATOR(opbridge_linalg::eig, opbridge_linalg::eig_shape, "opbridge::Eig(T a) -> (T values, T vectors)",
                  opbridge::types<float, double>)
