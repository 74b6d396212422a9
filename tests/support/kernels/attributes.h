#include "opbridge.h"

// What arrives of attributes of every kind, as numbers in a row.
void attributes_shape(opbridge::ShapeCall& call) { call.set_output(0, {opbridge::data_dependent}); }

void attributes(opbridge::Call& call) {
  double found[64];
  int64_t count = 0;
  found[count++] = static_cast<double>(call.attribute_int("n"));
  found[count++] = call.attribute_float("factor");
  for (char letter : call.attribute_string("mode")) found[count++] = letter;
  for (int64_t value : call.attribute_ints("axes")) found[count++] = static_cast<double>(value);
  for (double value : call.attribute_floats("scales")) found[count++] = value;
  for (const opbridge_string& name : call.attribute_strings("names")) found[count++] = static_cast<double>(name.size);
  if (call.has_attribute("table"))
    for (float value : call.attribute_tensor<float>("table")) found[count++] = value;
  const auto y = call.allocate_output<double>(0, {count});
  for (int64_t i = 0; i < count; ++i) y[i] = found[i];
}

OPBRIDGE_OPERATOR(attributes, attributes_shape,
                  "mylib::attributes(float64 x, int n, float factor=-2.5e-1, string mode='ab', int[] axes=[7, -8], "
                  "float[] scales=[], string[] names=['one', 'three'], tensor table=none) -> float64 y")
