// Deformable convolution, one group, no mask: for each output, the sum over the kernel's points of its weight times
// the input there, interpolated between the four pixels around the point. Points outside are 0.
#include "opbridge.h"

#include <cmath>

inline void deform_conv2d_shape(opbridge::ShapeCall& call) {
  const auto x = call.sizes(0), weight = call.sizes(1), offset = call.sizes(2);
  call.set_output(0, {x[0], weight[0], offset[2], offset[3]});
}

template <class T>
T deform_conv2d_pixel(const T* image, int64_t height, int64_t width, T y, T x) {
  const T top = std::floor(y), left = std::floor(x);
  T sum = 0;
  for (int corner = 0; corner < 4; ++corner) {
    const int64_t row = int64_t(top) + corner / 2, column = int64_t(left) + corner % 2;
    if (row < 0 || row >= height || column < 0 || column >= width) continue;
    const T share = (1 - std::fabs(y - T(row))) * (1 - std::fabs(x - T(column)));
    sum += share * image[row * width + column];
  }
  return sum;
}

template <class T>
void deform_conv2d(opbridge::Call& call) {
  const auto x = call.input<T>(0), weight = call.input<T>(1), offset = call.input<T>(2), bias = call.input<T>(3);
  const auto y = call.output<T>(0);
  const auto stride = call.attribute_ints("stride"), padding = call.attribute_ints("padding");
  const auto dilation = call.attribute_ints("dilation");
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3), rows = y.size(2), columns = y.size(3);
  const int64_t points_y = weight.size(2), points_x = weight.size(3), points = points_y * points_x;
  const int64_t plane = height * width, area = rows * columns, filters = y.size(1);
  call.parallel_for(y.count(), 256 / (channels * points) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % columns, row = i / columns % rows, filter = i / area % filters;
      const int64_t image = i / area / filters, place = row * columns + column;
      T sum = bias[filter];
      for (int64_t point = 0; point < points; ++point) {
        const T* moved = offset.data() + (image * 2 * points + 2 * point) * area + place;
        const T at_y = T(row * stride[0] - padding[0] + point / points_x * dilation[0]) + moved[0];
        const T at_x = T(column * stride[1] - padding[1] + point % points_x * dilation[1]) + moved[area];
        for (int64_t channel = 0; channel < channels; ++channel) {
          const T* pixels = x.data() + (image * channels + channel) * plane;
          const T value = deform_conv2d_pixel(pixels, height, width, at_y, at_x);
          sum += weight[(filter * channels + channel) * points + point] * value;
        }
      }
      y[i] = sum;
    }
  });
}

OPBRIDGE_OPERATOR(deform_conv2d, deform_conv2d_shape,
                  "custom::deform_conv2d(T x, T weight, T offset, T bias, int[] stride, int[] padding, int[] dilation)"
                  " -> T y",
                  opbridge::types<float, double>)
