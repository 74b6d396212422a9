// Upsampling, a filter, and downsampling in one step (StyleGAN 2, arXiv:1912.04958).
#include <algorithm>

#include "opbridge.h"

namespace opbridge_vision {

inline void upfirdn2d_shape(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 4, "input must have sizes (images, channels, height, width), not ", call.sizes(0));
  call.check(call.rank(1) == 1 || call.rank(1) == 2, "filter must have one or two axes, not sizes ", call.sizes(1));
  const auto up = call.attribute_ints("up"), down = call.attribute_ints("down"), padding = call.attribute_ints("padding");
  call.check(up.size() == 2 && down.size() == 2 && padding.size() == 4,
             "up and down must have two numbers, and padding four");
  int64_t sizes[2];
  for (int k = 0; k < 2; ++k) {
    // The first numbers are those of the width.
    const int64_t u = up[1 - k], d = down[1 - k];
    call.check(u > 0 && d > 0, "up and down must be positive");
    const int64_t padded = call.size(0, 2 + k) * u + padding[2 - 2 * k] + padding[3 - 2 * k];
    const int64_t taps = call.size(1, k < call.rank(1) ? k : 0);
    call.check(padded >= taps && taps > 0, "the filter has ", taps, " taps along an axis of ", padded, " padded pixels");
    sizes[k] = (padded - taps) / d + 1;
  }
  call.set_output(0, {call.size(0, 0), call.size(0, 1), sizes[0], sizes[1]});
}

template <class T>
void upfirdn2d(opbridge::Call& call) {
  const auto input = call.input<T>(0), filter = call.input<T>(1);
  const auto output = call.output<T>(0);
  const auto up = call.attribute_ints("up"), down = call.attribute_ints("down"), padding = call.attribute_ints("padding");
  const bool is_flipped = call.attribute_int("flip_filter") != 0;
  const T gain = static_cast<T>(call.attribute_float("gain"));
  const int64_t height = input.size(2), width = input.size(3), rows = filter.size(0), columns = filter.size(-1);
  const int64_t out_height = output.size(2), out_width = output.size(3);
  if (output.count() == 0) return;
  T* taps = call.scratch<T>(rows * columns);
  for (int64_t p = 0; p < rows; ++p)
    for (int64_t q = 0; q < columns; ++q) {
      const T tap = filter.rank() == 1 ? filter[p] * filter[q] : filter[p * columns + q];
      taps[is_flipped ? p * columns + q : (rows - 1 - p) * columns + columns - 1 - q] = tap * gain;
    }
  // Cropped pixels count as zeros.
  const int64_t last_row = height * up[1] + std::min(padding[3], int64_t(0));
  const int64_t last_column = width * up[0] + std::min(padding[1], int64_t(0));
  const int64_t work = rows * columns * out_width;
  call.parallel_for(output.count() / out_width, 16384 / work + 1, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const T* plane = &input[line / out_height * height * width];
      T* out = &output[line * out_width];
      std::fill(out, out + out_width, T(0));
      for (int64_t p = 0; p < rows; ++p) {
        const int64_t row = line % out_height * down[1] + p - padding[2];
        if (row < 0 || row >= last_row || row % up[1] != 0) continue;
        for (int64_t q = 0; q < columns; ++q) {
          const T tap = taps[p * columns + q];
          for (int64_t j = 0; j < out_width; ++j) {
            const int64_t column = j * down[0] + q - padding[0];
            if (column >= 0 && column < last_column && column % up[0] == 0)
              out[j] += tap * plane[row / up[1] * width + column / up[0]];
          }
        }
      }
    }
  });
}

}  // namespace opbridge_vision

OPBRIDGE_OPERATOR(opbridge_vision::upfirdn2d, opbridge_vision::upfirdn2d_shape,
                  "opbridge_vision::upfirdn2d(T input, T filter, int[] up, int[] down, int[] padding, int flip_filter=0,"
                  " float gain=1.0) -> T output",
                  opbridge::types<float, double>)
