#include "opbridge.h"

// The indices of the true elements, one row each: their number is known when they are counted.
void where_true_shape(opbridge::ShapeCall& call) { call.set_output(0, {opbridge::data_dependent, call.rank(0)}); }

void where_true(opbridge::Call& call) {
  const auto x = call.input<bool>(0);
  int64_t found = 0;
  for (bool value : x) found += value;
  const auto indices = call.allocate_output<int64_t>(0, {found, x.rank()});
  int64_t row = 0;
  for (int64_t i = 0; i < x.count(); ++i) {
    if (!x[i]) continue;
    int64_t rest = i;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      indices(row, axis) = rest % x.size(axis);
      rest /= x.size(axis);
    }
    ++row;
  }
}

OPBRIDGE_OPERATOR(where_true, where_true_shape, "mylib::where_true(bool x) -> int64 indices")
