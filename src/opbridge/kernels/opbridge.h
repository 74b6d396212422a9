// The only header that a kernel includes.
//
//     #include "opbridge.h"
//
//     template <class T>
//     void my_add(opbridge::Call& call) {
//       const auto alpha = static_cast<opbridge::compute_t<T>>(call.attribute_float("alpha"));
//       opbridge::elementwise(
//           call, call.output<T>(0), [alpha](auto a, auto b) { return alpha * a + b; }, call.input<T>(0), call.input<T>(1));
//     }
//
//     OPBRIDGE_OPERATOR(my_add, opbridge::shape_of_broadcast, "mylib::my_add(T a, T b, float alpha=2.0) -> T sum",
//                       opbridge::types<float, double, opbridge::half, opbridge::bfloat16>)
//
// The schema (opbridge/schema.h has its grammar):
//   T a              an input of the type variable T: any word that begins with a capital letter
//   T? a, T... a     an optional input; any number of inputs (the last one only)
//   int64 a          an input of a fixed type, by NumPy's name: float32, int64, bool, bfloat16, ...
//   int n            an attribute: int, float, string, int[], float[], string[] or tensor; required without a default
//   float alpha=2.0  a default: 3, -1e-5, 'text', [1, 2], or none for an attribute that may be absent
//   -> T y           the output; several as -> (T values, int64 indices); ? and ... as for inputs
// It is followed by one opbridge::types<...> per type variable, in the order in which the schema first names them. The
// kernel is a function template over these types; without type variables it is a plain function.
//
// The shape function gets an opbridge::ShapeCall and sets the sizes of each output from the inputs' sizes, the attributes
// and, if necessary, the inputs' contents. A data-dependent size is set to opbridge::data_dependent; the kernel
// then calls allocate_output. Ready-made: shape_of_first, shape_of_broadcast.
//
// Errors are exceptions: call.check(condition, ...), call.fail(...), or any std::exception. They become the engine's error,
// with the operator's name, and may be thrown inside a parallel_for body too. A kernel may run in several threads at once.
//
// Loops in elementwise and parallel_for are compiled twice, for every x86-64 processor and for those with AVX2; opbridge::exp,
// log, log1p and sigmoid are vectorized in them, the functions of <cmath> are not. Products and sums are not fused, so
// results are the same on every machine (unless built with native=True).
//
// A header-only dependency is named in the file's first lines, and found when the kernel is compiled:
//     // opbridge: requires eigen
#pragma once

#include "opbridge/abi.h"
#include "opbridge/call.h"
#include "opbridge/elementwise.h"
#include "opbridge/math.h"
#include "opbridge/registration.h"
#include "opbridge/schema.h"
#include "opbridge/tensor.h"
#include "opbridge/types.h"
