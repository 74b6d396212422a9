// How much two boxes overlap: the loop over them, for any kind of box.
#pragma once

#include "opbridge.h"

namespace opbridge_vision {

// The shape function of an overlap of boxes of `numbers` numbers.
inline void overlap_shape(opbridge::ShapeCall& call, int64_t numbers) {
  for (int i = 0; i < 2; ++i)
    call.check(call.rank(i) == 2 && call.size(i, 1) == numbers, "boxes", i + 1, " must have sizes (boxes, ", numbers,
               "), not ", call.sizes(i));
  const auto mode = call.attribute_string("mode");
  call.check(mode == "iou" || mode == "iof", "mode must be 'iou' or 'iof'");
  if (!call.attribute_int("aligned")) return call.set_output(0, {call.size(0, 0), call.size(1, 0)});
  call.check(call.size(0, 0) == call.size(1, 0), "aligned boxes must be of one number, not ", call.size(0, 0), " and ",
             call.size(1, 0));
  call.set_output(0, {call.size(0, 0)});
}

// Box has a member `area`; make(numbers) is a Box, shared(a, b) the area that two boxes share.
template <class Box, class T, class Make, class Shared>
void overlaps(opbridge::Call& call, const Make& make, const Shared& shared) {
  const auto first = call.input<T>(0), second = call.input<T>(1);
  const auto output = call.output<T>(0);
  const int64_t count = second.size(0), numbers = second.size(1);
  const bool aligned = call.attribute_int("aligned") != 0, of_first = call.attribute_string("mode") == "iof";
  Box* made = call.scratch<Box>(count);
  for (int64_t j = 0; j < count; ++j) made[j] = make(&second[numbers * j]);
  call.parallel_for(first.size(0), aligned ? 256 : 256 / (count + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Box box = make(&first[numbers * i]);
      for (int64_t j = aligned ? i : 0; j < (aligned ? i + 1 : count); ++j) {
        const T common = shared(box, made[j]), whole = of_first ? box.area : box.area + made[j].area - common;
        output[aligned ? i : i * count + j] = whole > 0 ? common / whole : T(0);
      }
    }
  });
}

}  // namespace opbridge_vision
