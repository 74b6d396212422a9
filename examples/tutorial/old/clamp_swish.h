// customOp2: max(x, 0) / (1 + exp(-max(x, 0))).
#include "opbridge.h"

template <class T>
void customOp2(opbridge::Call& call) {
  const auto function = [](T x) {
    const T clamped = x < 0 ? T(0) : x;
    return clamped / (1 + opbridge::exp(-clamped));
  };
  opbridge::elementwise(call, call.output<T>(0), function, call.input<T>(0));
}

OPBRIDGE_OPERATOR(customOp2, opbridge::shape_of_first, "custom_domain::customOp2(T x) -> T y",
                  opbridge::types<float, double>)
