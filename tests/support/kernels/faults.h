#include <stdexcept>
#include <string>

#include "opbridge.h"

// Does what a kernel should not, as the attribute says.
void faults_shape(opbridge::ShapeCall& call) {
  const auto how = call.attribute_string("how");
  if (how == "shape throws") throw std::logic_error("no such shape");
  if (how == "negative") call.set_output(0, {-7});
  else if (how == "forget" || how == "twice") call.set_output(0, {opbridge::data_dependent});
  else call.set_output(0, call.sizes(0));
}

template <class T>
void faults(opbridge::Call& call) {
  const auto how = call.attribute_string("how");
  if (how == "std::exception") throw std::out_of_range("beyond the end");
  if (how == "number") throw 3;
  if (how == "check") call.check(false, "expected ", 3, ", got sizes ", call.sizes(0), " and ", 2.5);
  if (how == "long") call.fail(std::string(5000, 'x'));
  if (how == "parallel")
    call.parallel_for(100000, 10, [&](int64_t begin, int64_t) {
      if (begin > 500) call.fail("in a thread");
    });
  if (how == "type") call.input<int8_t>(0);
  if (how == "attribute") call.attribute_int("absent");
  if (how == "kind") call.attribute_int("how");
  if (how == "input") call.input<T>(5);
  if (how == "scratch") call.scratch<double>(int64_t{1} << 57);
  if (how == "twice")
    for (int k = 0; k < 2; ++k) call.allocate_output<T>(0, {2});
  if (how == "unneeded") call.allocate_output<T>(0, {2});
  if (how == "none") {
    T* copy = call.scratch<T>(call.input<T>(0).count());
    for (int64_t i = 0; i < call.input<T>(0).count(); ++i) copy[i] = call.input<T>(0)[i];
    for (int64_t i = 0; i < call.output<T>(0).count(); ++i) call.output<T>(0)[i] = copy[i];
  }
}

OPBRIDGE_OPERATOR(faults, faults_shape, "mylib::faults(T x, string how='none') -> T y", opbridge::types<float>)
