// The bytes of a tensor as elements of another type; the last axis changes its length.
#include <cstring>

#include "opbridge.h"

namespace bit_cast {

void shape(opbridge::ShapeCall& call) {
  opbridge::Sizes sizes = call.sizes(0);
  const int64_t before = opbridge_dtype_size(call.input_dtype(0)), after = opbridge_dtype_size(call.input_dtype(1));
  if (before != after) {
    call.check(sizes.rank() > 0, "a scalar of ", before, " bytes can't be one of ", after);
    int64_t& last = sizes[sizes.rank() - 1];
    call.check(last * before % after == 0, "the last axis has ", last * before, " bytes, no multiple of ", after);
    last = last * before / after;
  }
  call.set_output(0, sizes);
}

inline void copy(const opbridge::Call& call, const void* from, void* to, int64_t bytes) {
  call.parallel_for(bytes, 65536, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, static_cast<size_t>(end - begin));
  });
}

template <class T, class U>
void run(opbridge::Call& call) {
  const auto y = call.output<U>(0);
  copy(call, call.input<T>(0).data(), y.data(), y.count() * static_cast<int64_t>(sizeof(U)));
}

}  // namespace bit_cast

OPBRIDGE_OPERATOR(bit_cast::run, bit_cast::shape, "opbridge::BitCast(T x, U like) -> U y",
                  opbridge::types<float, double, opbridge::half, opbridge::bfloat16, int8_t, int16_t, int32_t, int64_t,
                                  uint8_t, uint16_t, uint32_t, uint64_t, bool>,
                  opbridge::types<float, double, opbridge::half, opbridge::bfloat16, int8_t, int16_t, int32_t, int64_t,
                                  uint8_t, uint16_t, uint32_t, uint64_t, bool>)
