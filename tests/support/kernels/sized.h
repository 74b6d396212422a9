#include "opbridge.h"

// A vector of a length that an attribute or an input's contents give.
void sized_shape(opbridge::ShapeCall& call) {
  const auto lengths = call.attribute_ints("lengths");
  const int64_t factor = call.attribute_int("factor");
  const bool twice = call.attribute_string("mode") == "twice" && call.attribute_float("threshold") > 0.5;
  int64_t length = 0;
  for (int64_t part : lengths) length += part;
  for (double part : call.attribute_floats("more")) length += static_cast<int64_t>(part);
  call.set_output(0, {length * factor * (twice ? 2 : 1), call.size(0, 0)});
}

void sized(opbridge::Call& call) {
  for (float& value : call.output<float>(0)) value = call.input<float>(0)[0];
}

void arange_shape(opbridge::ShapeCall& call) { call.set_output(0, {call.input<int64_t>(0)(0)}); }

void arange(opbridge::Call& call) {
  const auto y = call.output<int64_t>(0);
  for (int64_t i = 0; i < y.count(); ++i) y[i] = i;
}

OPBRIDGE_OPERATOR(sized, sized_shape,
                  "mylib::sized(float32 x, int[] lengths, int factor=1, string mode='once', float threshold=1.0, "
                  "float[] more=[]) -> float32 y")
OPBRIDGE_OPERATOR(arange, arange_shape, "mylib::arange(int64 stop) -> int64 y")
