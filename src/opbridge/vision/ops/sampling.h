// Bilinear samples as RoI align takes them (arXiv:1703.06870).
#pragma once

#include <algorithm>
#include <cstdint>

namespace opbridge_vision {

// The four pixels that a sample lies between, and their shares. A sample less than a pixel outside of the image has the
// value of the border; one further away, or at NaN, is outside.
template <class T>
struct BilinearSample {
  bool inside;
  int64_t places[4];
  T shares[4];

  BilinearSample(int64_t height, int64_t width, T y, T x) {
    inside = y >= T(-1) && y <= static_cast<T>(height) && x >= T(-1) && x <= static_cast<T>(width);
    if (!inside) return;
    y = std::min(std::max(y, T(0)), static_cast<T>(height - 1));
    x = std::min(std::max(x, T(0)), static_cast<T>(width - 1));
    const int64_t top = static_cast<int64_t>(y), left = static_cast<int64_t>(x);
    const int64_t bottom = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
    const T down = y - static_cast<T>(top), across = x - static_cast<T>(left);
    const T parts[] = {(1 - down) * (1 - across), (1 - down) * across, down * (1 - across), down * across};
    const int64_t pixels[] = {top * width + left, top * width + right, bottom * width + left, bottom * width + right};
    std::copy(parts, parts + 4, shares);
    std::copy(pixels, pixels + 4, places);
  }

  // The value of the sample in one channel.
  T of(const T* plane) const {
    T sum = 0;
    for (int corner = 0; corner < 4; ++corner) sum += shares[corner] * plane[places[corner]];
    return sum;
  }
};

}  // namespace opbridge_vision
