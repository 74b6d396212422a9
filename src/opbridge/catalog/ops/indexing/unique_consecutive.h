// One element of each run of equal elements, the run of each element, and the lengths of the runs.
#include <algorithm>

#include "opbridge.h"

namespace unique_consecutive {

// As many elements are checked at once, since most of a long run are equal.
constexpr int64_t block = 32;

void shape(opbridge::ShapeCall& call) {
  call.set_output(0, {opbridge::data_dependent});
  if (call.attribute_int("return_inverse") != 0) call.set_output(1, call.sizes(0));
  else call.set_output(1, {0});
  if (call.attribute_int("return_counts") != 0) call.set_output(2, {opbridge::data_dependent});
  else call.set_output(2, {0});
}

template <class T>
void run(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const int64_t length = x.count();
  int64_t number = length > 0 ? 1 : 0;
  call.parallel_for(length, length, [&](int64_t begin, int64_t end) {
    int64_t changes = 0;
    for (int64_t i = begin + 1; i < end; ++i) changes += x[i] != x[i - 1] ? 1 : 0;
    number += changes;
  });
  const auto kept = call.allocate_output<T>(0, {number});
  const bool counts_runs = call.attribute_int("return_counts") != 0;
  int64_t* counts = counts_runs ? call.allocate_output<int64_t>(2, {number}).data() : nullptr;
  int64_t* inverse = call.attribute_int("return_inverse") != 0 ? call.output<int64_t>(1).data() : nullptr;
  int64_t found = 0, start = 0;
  const auto visit = [&](int64_t i) {
    if (i == 0 || x[i] != x[i - 1]) {
      if (counts != nullptr && i > 0) counts[found - 1] = i - start;
      start = i;
      kept[found++] = x[i];
    }
    if (inverse != nullptr) inverse[i] = found - 1;
  };
  call.parallel_for(length, length, [&](int64_t begin, int64_t end) {
    const T* in = x.data();
    if (begin < end) visit(begin);
    int64_t i = begin + 1;
    for (; i + block <= end; i += block) {
      int changes = 0;
      for (int64_t k = i; k < i + block; ++k) changes |= in[k] != in[k - 1] ? 1 : 0;
      if (changes != 0)
        for (int64_t k = i; k < i + block; ++k) visit(k);
      else if (inverse != nullptr) std::fill_n(inverse + i, block, found - 1);
    }
    for (; i < end; ++i) visit(i);
  });
  if (counts != nullptr && length > 0) counts[found - 1] = length - start;
}

}  // namespace unique_consecutive

OPBRIDGE_OPERATOR(unique_consecutive::run, unique_consecutive::shape,
                  "opbridge::UniqueConsecutive(T x, int return_inverse, int return_counts) "
                  "-> (T kept, int64 inverse, int64 counts)",
                  opbridge::types<float, double, int32_t, int64_t>)
