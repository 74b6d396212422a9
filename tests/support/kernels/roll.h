#include "opbridge.h"

// Elements shifted along axes, those that fall off coming back at the other end.
template <class T>
void roll(opbridge::Call& call) {
  const auto x = call.strided_input<T>(0);
  const auto y = call.output<T>(0);
  const auto shifts = call.attribute_ints("shifts");
  const auto axes = call.attribute_ints("axes");
  call.check(shifts.size() == axes.size(), "there are ", shifts.size(), " shifts for ", axes.size(), " axes");
  int64_t shift[OPBRIDGE_MAX_RANK] = {};
  for (int64_t k = 0; k < axes.size(); ++k) shift[opbridge::normalized_axis(axes[k], x.rank())] += shifts[k];
  call.parallel_for(y.count(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, offset = 0;
      for (int axis = x.rank() - 1; axis >= 0; --axis) {
        const int64_t size = x.size(axis);
        const int64_t from = ((rest % size - shift[axis]) % size + size) % size;
        offset += from * x.stride(axis);
        rest /= size;
      }
      y[i] = x.data()[offset];
    }
  });
}

OPBRIDGE_OPERATOR(roll, opbridge::shape_of_first, "mylib::roll(T x, int[] shifts, int[] axes=[0]) -> T y",
                  opbridge::types<float, int64_t, bool>)
