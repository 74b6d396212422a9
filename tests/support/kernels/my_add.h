#include "opbridge.h"

// alpha * a + b, broadcast.
template <class T>
void my_add(opbridge::Call& call) {
  const auto alpha = static_cast<opbridge::compute_t<T>>(call.attribute_float("alpha"));
  opbridge::elementwise(
      call, call.output<T>(0), [alpha](auto a, auto b) { return alpha * a + b; }, call.input<T>(0), call.input<T>(1));
}

OPBRIDGE_OPERATOR(my_add, opbridge::shape_of_broadcast, "mylib::my_add(T a, T b, float alpha=2.0) -> T sum",
                  opbridge::types<float, double, opbridge::half, opbridge::bfloat16, int64_t, uint8_t>)
