// 2a + b, broadcast.
#include "opbridge.h"

template <class T>
void my_add(opbridge::Call& call) {
  const auto a = call.input<T>(0);
  const auto b = call.input<T>(1);
  opbridge::elementwise(
      call, call.output<T>(0), [](auto a, auto b) { return 2 * a + b; }, a, b);
}

OPBRIDGE_OPERATOR(my_add, opbridge::shape_of_broadcast, "mylib::my_add(T a, T b) -> T sum",
                  opbridge::types<float, double, opbridge::half, opbridge::bfloat16, int32_t, int64_t>)
