#include <atomic>
#include <type_traits>

#include "opbridge.h"

// Every size and index is of 64 bits.
static_assert(std::is_same_v<decltype(opbridge_tensor::sizes), int64_t*>);
static_assert(std::is_same_v<decltype(opbridge_tensor::strides), const int64_t*>);
static_assert(std::is_same_v<opbridge_body, void (*)(void*, int64_t, int64_t)>);
static_assert(std::is_same_v<decltype(std::declval<opbridge::Tensor<float>>().count()), int64_t>);
static_assert(std::is_same_v<decltype(std::declval<opbridge::SizeSpan>()[0]), const int64_t&>);
static_assert(std::is_same_v<decltype(opbridge::element_count(opbridge::Sizes())), int64_t>);

// Where the piece of a parallel loop began that each element was in.
void pieces(opbridge::Call& call) {
  const auto y = call.output<int64_t>(0);
  call.parallel_for(y.count(), call.attribute_int("grain"), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = begin;
  });
}

// Of a tensor with more elements than 32 bits count: their number, the last one, and what a loop over them covers.
void far_shape(opbridge::ShapeCall& call) { call.set_output(0, {3}); }

void far_away(opbridge::Call& call) {
  const auto x = call.strided_input<uint8_t>(0);
  const auto y = call.output<int64_t>(0);
  std::atomic<int64_t> covered{0};
  call.parallel_for(x.count(), 1000, [&](int64_t begin, int64_t end) { covered += end - begin; });
  y[0] = x.count();
  y[1] = x(x.size(0) - 1, x.size(1) - 1);
  y[2] = covered;
}

OPBRIDGE_OPERATOR(far_away, far_shape, "mylib::far(uint8 x) -> int64 y")
OPBRIDGE_OPERATOR(pieces, opbridge::shape_of_first, "mylib::pieces(int64 x, int grain) -> int64 y")
