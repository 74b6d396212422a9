// Kernels for tests/kernels/test_torch_kernel.py: an operator per thing that PyTorch's side must get right.
#include <cmath>

#include "opbridge.h"

namespace torch_cases {

template <class T>
void twice_plus(opbridge::Call& call) {
  const auto alpha = static_cast<opbridge::compute_t<T>>(call.attribute_float("alpha"));
  opbridge::elementwise(
      call, call.output<T>(0), [alpha](auto a, auto b) { return alpha * a + b; }, call.input<T>(0), call.input<T>(1));
}

// Every kind of attribute: factor x^power, negated in mode "negative", plus the sums of the shifts and weights and the
// number of characters of the names.
void attributes(opbridge::Call& call) {
  const auto power = static_cast<double>(call.attribute_int("power"));
  const double sign = call.attribute_string("mode") == "negative" ? -1.0 : 1.0;
  const double factor = sign * call.attribute_float("factor") * (call.attribute_int("twice") != 0 ? 2.0 : 1.0);
  double constant = 0;
  if (call.has_attribute("shifts"))
    for (int64_t shift : call.attribute_ints("shifts")) constant += static_cast<double>(shift);
  for (double weight : call.attribute_floats("weights")) constant += weight;
  for (const opbridge_string& name : call.attribute_strings("names")) constant += static_cast<double>(name.size);
  opbridge::elementwise(
      call, call.output<float>(0),
      [=](float x) { return static_cast<float>(factor * std::pow(static_cast<double>(x), power) + constant); },
      call.input<float>(0));
}

void shape_of_rows(opbridge::ShapeCall& call) {
  call.check(call.rank(0) >= 1, "x must have a last axis");
  opbridge::Sizes sizes;
  for (int axis = 0; axis + 1 < call.rank(0); ++axis) sizes.push_back(call.size(0, axis));
  call.set_output(0, sizes);
  call.set_output(1, sizes);
}

template <class T>
void largest(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  auto values = call.output<T>(0);
  auto indices = call.output<int64_t>(1);
  const int64_t columns = x.size(-1);
  for (int64_t row = 0; row < values.count(); ++row) {
    int64_t best = 0;
    for (int64_t i = 1; i < columns; ++i)
      if (x[row * columns + i] > x[row * columns + best]) best = i;
    values[row] = x[row * columns + best];
    indices[row] = best;
  }
}

void masked(opbridge::Call& call) {
  const auto x = call.input<float>(0);
  auto y = call.output<float>(0);
  for (int64_t i = 0; i < x.count(); ++i) {
    const bool kept = !call.has_input(1) || call.input<bool>(1)[i];
    y[i] = (kept ? x[i] : 0.0f) + (call.has_input(2) ? call.input<float>(2)[0] : 0.0f);
  }
}

template <class T>
void total(opbridge::Call& call) {
  const auto weight = static_cast<opbridge::compute_t<T>>(call.attribute_float("weight"));
  auto y = call.output<T>(0);
  for (int64_t i = 0; i < y.count(); ++i) {
    opbridge::compute_t<T> sum = 0;
    for (int part = 0; part < call.input_count(); ++part) sum += call.input<T>(part)[i];
    y[i] = sum * weight;
  }
}

void shape_of_counted(opbridge::ShapeCall& call) { call.set_output(0, opbridge::Sizes()); }

template <class T>
void counted(opbridge::Call& call) {
  call.output<int64_t>(0)[0] = call.input_count();
}

void shape_of_positives(opbridge::ShapeCall& call) { call.set_output(0, opbridge::Sizes{opbridge::data_dependent, 2}); }

// Each positive element with its position, a row each.
void positives(opbridge::Call& call) {
  const auto x = call.input<float>(0);
  int64_t count = 0;
  for (float value : x) count += value > 0 ? 1 : 0;
  auto y = call.allocate_output<float>(0, opbridge::Sizes{count, 2});
  count = 0;
  for (int64_t i = 0; i < x.count(); ++i) {
    if (!(x[i] > 0)) continue;
    y[2 * count] = static_cast<float>(i);
    y[2 * count++ + 1] = x[i];
  }
}

// Makes each mistake that is named with an output whose size depends on the data.
void careless(opbridge::Call& call) {
  const auto mistake = call.attribute_string("mistake");
  if (mistake == "sizes") call.allocate_output<float>(0, opbridge::Sizes{1, 3});
  if (mistake == "rank") call.allocate_output<float>(0, opbridge::Sizes{1});
  if (mistake == "twice")
    for (int i = 0; i < 2; ++i) call.allocate_output<float>(0, opbridge::Sizes{1, 2});
  if (mistake == "memory") call.allocate_output<float>(0, opbridge::Sizes{int64_t{1} << 60, 2});
}

void shape_of_padded(opbridge::ShapeCall& call) {
  opbridge::Sizes sizes(call.sizes(0));
  sizes[0] += *call.input<int64_t>(1).data();
  call.set_output(0, sizes);
}

// x, and amount rows of zeros.
void padded(opbridge::Call& call) {
  const auto x = call.input<float>(0);
  auto y = call.output<float>(0);
  for (int64_t i = 0; i < y.count(); ++i) y[i] = i < x.count() ? x[i] : 0.0f;
}

// In which piece each element was.
void pieces(opbridge::Call& call) {
  auto y = call.output<int64_t>(0);
  call.parallel_for(y.count(), 10, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = begin;
  });
}

void refuses_negative(opbridge::Call& call) {
  const auto x = call.input<float>(0);
  auto y = call.output<float>(0);
  call.parallel_for(x.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      call.check(x[i] >= 0, "element ", i, " is negative");
      y[i] = x[i];
    }
  });
}

}  // namespace torch_cases

OPBRIDGE_OPERATOR(torch_cases::twice_plus, opbridge::shape_of_broadcast,
                  "test_torch_kernel::twice_plus(T a, T b, float alpha=2.0) -> T y",
                  opbridge::types<float, opbridge::half, opbridge::bfloat16>)
OPBRIDGE_OPERATOR(torch_cases::attributes, opbridge::shape_of_first,
                  "test_torch_kernel::attributes(float32 x, float factor, int power=1, string mode='plain', "
                  "int twice=0, int[] shifts=none, float[] weights=[0.5], string[] names=['ab', 'c']) -> float32 y")
OPBRIDGE_OPERATOR(torch_cases::largest, torch_cases::shape_of_rows,
                  "test_torch_kernel::largest(T x) -> (T values, int64 indices)",
                  opbridge::types<float, int32_t, double>)
OPBRIDGE_OPERATOR(torch_cases::masked, opbridge::shape_of_first,
                  "test_torch_kernel::masked(float32 x, bool? mask, float32? bias) -> float32 y")
OPBRIDGE_OPERATOR(torch_cases::total, opbridge::shape_of_first,
                  "test_torch_kernel::total(T... parts, float weight) -> T y", opbridge::types<float, opbridge::half>)
OPBRIDGE_OPERATOR(torch_cases::counted, torch_cases::shape_of_counted,
                  "test_torch_kernel::counted(T... parts) -> int64 n", opbridge::types<float, opbridge::half>)
OPBRIDGE_OPERATOR(torch_cases::positives, torch_cases::shape_of_positives,
                  "test_torch_kernel::positives(float32 x) -> float32 y")
OPBRIDGE_OPERATOR(torch_cases::careless, torch_cases::shape_of_positives,
                  "test_torch_kernel::careless(float32 x, string mistake) -> float32 y")
OPBRIDGE_OPERATOR(torch_cases::padded, torch_cases::shape_of_padded,
                  "test_torch_kernel::padded(float32 x, int64 amount) -> float32 y")
OPBRIDGE_OPERATOR(torch_cases::pieces, opbridge::shape_of_first, "test_torch_kernel::pieces(int64 x) -> int64 y")
OPBRIDGE_OPERATOR(torch_cases::refuses_negative, opbridge::shape_of_first,
                  "test_torch_kernel::refuses_negative(float32 x) -> float32 y")
