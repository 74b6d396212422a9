#include "opbridge.h"

// x * factor + bias, the bias being optional.
template <class T>
void scale(opbridge::Call& call) {
  const auto y = call.output<T>(0);
  if (call.has_input(2)) {
    const auto function = [](auto x, auto factor, auto bias) { return x * factor + bias; };
    opbridge::elementwise(call, y, function, call.input<T>(0), call.input<T>(1), call.input<T>(2));
  } else {
    opbridge::elementwise(
        call, y, [](auto x, auto factor) { return x * factor; }, call.input<T>(0), call.input<T>(1));
  }
}

OPBRIDGE_OPERATOR(scale, opbridge::shape_of_first, "mylib::scale(T x, T factor, T? bias) -> T y", opbridge::types<float>)
