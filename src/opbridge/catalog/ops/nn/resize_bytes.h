// Resizing of images of bytes with fixed-point weights.
#include <cmath>
#include <cstdint>

#include "opbridge.h"

namespace resized_bytes {

void shape(opbridge::ShapeCall& call) {
  const int rank = call.rank(0);
  call.check(rank >= 2, "the image must have at least 2 axes, not ", rank);
  opbridge::Sizes sizes;
  for (int axis = 0; axis < rank - 2; ++axis) sizes.push_back(call.size(0, axis));
  for (int i = 1; i < 3; ++i) {
    const int axis = rank - 3 + i;
    call.check(call.rank(i) == 2, "the weights of axis ", axis, " must be a matrix, not of rank ", call.rank(i));
    call.check(call.size(i, 1) == call.size(0, axis), "the weights of axis ", axis, " must have ", call.size(0, axis),
               " columns, not ", call.size(i, 1));
    sizes.push_back(call.size(i, 0));
  }
  call.set_output(0, sizes);
}

// The input elements begin .. end - 1 have weights that are not 0.
struct Window {
  int64_t begin, end;
};

// The weights of one axis, rounded to as many binary places, at most 22, as let the largest fit in 16 bits.
struct Weights {
  int64_t want, have;
  int32_t* values;
  Window* windows;
  int places;

  Weights(opbridge::Call& call, int input) {
    const auto weights = call.input<double>(input);
    want = weights.size(0), have = weights.size(1);
    values = call.scratch<int32_t>(weights.count());
    windows = call.scratch<Window>(want);
    double largest = 0;
    for (int64_t i = 0; i < weights.count(); ++i) largest = weights[i] > largest ? weights[i] : largest;
    places = 0;
    while (places < 22 && std::floor(std::ldexp(largest, places + 1) + 0.5) < 32768) ++places;
    for (int64_t row = 0; row < want; ++row) {
      Window window = {have, 0};
      for (int64_t i = 0; i < have; ++i) {
        const double scaled = std::ldexp(weights[row * have + i], places);
        const auto value = static_cast<int32_t>(scaled + (scaled < 0 ? -0.5 : 0.5));
        values[row * have + i] = value;
        if (value == 0) continue;
        if (window.begin == have) window.begin = i;
        window.end = i + 1;
      }
      windows[row] = window;
    }
  }

  int32_t half() const { return places == 0 ? 0 : 1 << (places - 1); }

  uint8_t rounded(int32_t sum) const {
    const int32_t value = sum >> places;
    return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
  }
};

// One image: along its rows, then along its columns. A sum of products is below 2^31: the weights sum to 1.
void resize(const uint8_t* image, const Weights& rows, const Weights& columns, uint8_t* widened, int32_t* sums,
            uint8_t* result) {
  for (int64_t y = 0; y < rows.have; ++y)
    for (int64_t x = 0; x < columns.want; ++x) {
      const Window window = columns.windows[x];
      int32_t sum = columns.half();
      for (int64_t i = window.begin; i < window.end; ++i)
        sum += columns.values[x * columns.have + i] * image[y * columns.have + i];
      widened[y * columns.want + x] = columns.rounded(sum);
    }
  for (int64_t y = 0; y < rows.want; ++y) {
    const Window window = rows.windows[y];
    for (int64_t x = 0; x < columns.want; ++x) sums[x] = rows.half();
    for (int64_t i = window.begin; i < window.end; ++i) {
      const int32_t weight = rows.values[y * rows.have + i];
      for (int64_t x = 0; x < columns.want; ++x) sums[x] += weight * widened[i * columns.want + x];
    }
    for (int64_t x = 0; x < columns.want; ++x) result[y * columns.want + x] = rows.rounded(sums[x]);
  }
}

void run(opbridge::Call& call) {
  const auto images = call.input<uint8_t>(0);
  const auto results = call.output<uint8_t>(0);
  if (results.count() == 0) return;
  const Weights rows(call, 1), columns(call, 2);
  const int64_t before = rows.have * columns.have, after = rows.want * columns.want;
  const int64_t between = rows.have * columns.want, count = results.count() / after;
  auto* widened = call.scratch<uint8_t>(count * between);
  auto* sums = call.scratch<int32_t>(count * columns.want);
  call.parallel_for(count, 1 + 16384 / (between + after), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      resize(images.data() + i * before, rows, columns, widened + i * between, sums + i * columns.want,
             results.data() + i * after);
  });
}

}  // namespace resized_bytes

OPBRIDGE_OPERATOR(resized_bytes::run, resized_bytes::shape,
                  "opbridge::ResizeBytes(uint8 image, float64 rows, float64 columns) -> uint8 result")
