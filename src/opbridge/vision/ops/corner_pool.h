// Corner pooling (CornerNet, arXiv:1808.01244).
#include <string_view>

#include "opbridge.h"

namespace opbridge_vision {

inline void corner_pool_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 4, "input must have sizes (images, channels, height, width), not ", call.sizes(0));
  const auto mode = call.attribute_string("mode");
  call.check(mode == "top" || mode == "bottom" || mode == "left" || mode == "right",
             "mode must be 'top', 'bottom', 'left' or 'right'");
  call.set_output(0, call.sizes(0));
}

template <class T>
void corner_pool(opbridge::Call& call) {
  const auto input = call.input<T>(0);
  const auto output = call.output<T>(0);
  const auto mode = call.attribute_string("mode");
  const bool along_rows = mode == "left" || mode == "right", is_reversed = mode == "top" || mode == "left";
  const int64_t height = input.size(2), width = input.size(3), area = height * width;
  if (area == 0) return;
  const int64_t before = along_rows ? 1 : width;
  call.parallel_for(input.size(0) * input.size(1), 16384 / area + 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const T* in = &input[plane * area];
      T* out = &output[plane * area];
      for (int64_t at = 0; at < area; ++at) {
        const int64_t place = is_reversed ? area - 1 - at : at;
        const bool is_first = along_rows ? at % width == 0 : at < width;
        const T value = in[place], best = is_first ? value : out[is_reversed ? place + before : place - before];
        // NaN is the largest, as in PyTorch.
        out[place] = value > best || value != value ? value : best;
      }
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::corner_pool, opbridge_vision::corner_pool_shape,
                  "opbridge_vision::corner_pool(T input, string mode) -> T output", opbridge::types<float, double>)
