// The XOR of the bits of elements, after conversion to float64 or int64.
#include <algorithm>

#include "opbridge.h"

namespace hash_tensor {

constexpr int64_t chunk = 32768;

void shape(opbridge::ShapeCall& call) {
  bool is_reduced[OPBRIDGE_MAX_RANK] = {};
  for (int64_t axis : call.attribute_ints("dim")) is_reduced[opbridge::normalized_axis(axis, call.rank(0))] = true;
  opbridge::Sizes sizes;
  for (int axis = 0; axis < call.rank(0); ++axis)
    if (!is_reduced[axis]) sizes.push_back(call.size(0, axis));
    else if (call.attribute_int("keepdim") != 0) sizes.push_back(1);
  call.set_output(0, sizes);
}

template <class T>
uint64_t bits(T value) {
  if constexpr (std::is_integral_v<T>) return static_cast<uint64_t>(static_cast<int64_t>(value));
  return opbridge::detail::bits_of(static_cast<double>(static_cast<opbridge::compute_t<T>>(value)));
}

// Axes that are all kept or all reduced.
struct Axes {
  int64_t sizes[OPBRIDGE_MAX_RANK], strides[OPBRIDGE_MAX_RANK], count = 1;
  int rank = 0;

  void add(int64_t size, int64_t stride) {
    sizes[rank] = size;
    strides[rank++] = stride;
    count *= size;
  }
  // The position of an index that counts from the first axis added, which is the last one of the tensor.
  int64_t position(int64_t index) const {
    int64_t result = 0;
    for (int axis = 0; axis < rank; ++axis) {
      result += index % sizes[axis] * strides[axis];
      index /= sizes[axis];
    }
    return result;
  }
};

template <class T>
uint64_t of_run(const T* x, int64_t count) {
  uint64_t hash = 0;
  for (int64_t i = 0; i < count; ++i) hash ^= bits(x[i]);
  return hash;
}

template <class T>
void run(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const auto y = call.output<uint64_t>(0);
  std::fill_n(y.data(), y.count(), uint64_t(0));
  if (x.count() == 0) return;
  if (y.count() == 1) {
    const int64_t pieces = (x.count() + chunk - 1) / chunk;
    auto* hashes = call.scratch<uint64_t>(pieces);
    call.parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece)
        hashes[piece] = of_run(x.data() + piece * chunk, std::min(chunk, x.count() - piece * chunk));
    });
    for (int64_t piece = 0; piece < pieces; ++piece) y[0] ^= hashes[piece];
    return;
  }
  bool is_reduced[OPBRIDGE_MAX_RANK] = {};
  for (int64_t axis : call.attribute_ints("dim")) is_reduced[opbridge::normalized_axis(axis, x.rank())] = true;
  // The last axes that are all kept, or all reduced, are a run of neighbouring elements.
  int axis = x.rank() - 1;
  const bool reduces_run = is_reduced[axis];
  int64_t length = 1;
  while (axis >= 0 && is_reduced[axis] == reduces_run) length *= x.size(axis--);
  Axes kept, reduced;
  for (int64_t stride = length; axis >= 0; stride *= x.size(axis--))
    (is_reduced[axis] ? reduced : kept).add(x.size(axis), stride);
  const int64_t work = reduced.count * length;
  call.parallel_for(kept.count, 1 + chunk / work, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const T* start = x.data() + kept.position(index);
      for (int64_t k = 0; k < reduced.count; ++k) {
        const T* in = start + reduced.position(k);
        if (reduces_run) {
          y[index] ^= of_run(in, length);
        } else {
          uint64_t* out = y.data() + index * length;
          for (int64_t i = 0; i < length; ++i) out[i] ^= bits(in[i]);
        }
      }
    }
  });
}

}  // namespace hash_tensor

OPBRIDGE_OPERATOR(hash_tensor::run, hash_tensor::shape,
                  "opbridge::HashTensor(T x, int[] dim, int keepdim) -> uint64 hash",
                  opbridge::types<float, double, opbridge::half, opbridge::bfloat16, int64_t, int32_t, int16_t, int8_t,
                                  uint8_t, bool>)
