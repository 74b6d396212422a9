// The C interface between a library of kernels and its host, an engine or PyTorch. Host programs need only this file.
// Everything here is plain C; the layout is fixed for one OPBRIDGE_ABI_VERSION.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define OPBRIDGE_ABI_VERSION 1
// The largest rank of tensors and of attribute tensors. A host refuses larger ranks before it calls a kernel.
#define OPBRIDGE_MAX_RANK 32
#define OPBRIDGE_ERROR_SIZE 1024
// A size that shape() does not know: run() requests the output with allocate_output.
#define OPBRIDGE_DATA_DEPENDENT (-1)

#if defined(_WIN32)
#define OPBRIDGE_SYSTEM "windows"
#elif defined(__APPLE__)
#define OPBRIDGE_SYSTEM "macos"
#elif defined(__linux__)
#define OPBRIDGE_SYSTEM "linux"
#else
#define OPBRIDGE_SYSTEM "unknown"
#endif
#if defined(__x86_64__) || defined(_M_X64)
#define OPBRIDGE_MACHINE "x86_64"
#elif defined(__aarch64__) || defined(_M_ARM64)
#define OPBRIDGE_MACHINE "aarch64"
#elif defined(__riscv)
#define OPBRIDGE_MACHINE "riscv64"
#else
#define OPBRIDGE_MACHINE "unknown"
#endif

#if defined(_WIN32)
#define OPBRIDGE_EXPORT __declspec(dllexport)
#else
#define OPBRIDGE_EXPORT __attribute__((visibility("default"), used))
#endif

#ifdef __cplusplus
#define OPBRIDGE_INLINE constexpr
#else
#define OPBRIDGE_INLINE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Element types, with the numbers of ONNX's TensorProto.DataType.
enum {
  OPBRIDGE_ABSENT = 0,
  OPBRIDGE_FLOAT32 = 1,
  OPBRIDGE_UINT8 = 2,
  OPBRIDGE_INT8 = 3,
  OPBRIDGE_UINT16 = 4,
  OPBRIDGE_INT16 = 5,
  OPBRIDGE_INT32 = 6,
  OPBRIDGE_INT64 = 7,
  OPBRIDGE_BOOL = 9,
  OPBRIDGE_FLOAT16 = 10,
  OPBRIDGE_FLOAT64 = 11,
  OPBRIDGE_UINT32 = 12,
  OPBRIDGE_UINT64 = 13,
  OPBRIDGE_BFLOAT16 = 16
};

// Kinds of attributes, and what opbridge_value.data points to.
enum {
  OPBRIDGE_KIND_NONE = 0,    // nothing: an attribute without a value
  OPBRIDGE_KIND_INT = 1,     // one int64_t
  OPBRIDGE_KIND_FLOAT = 2,   // one double
  OPBRIDGE_KIND_STRING = 3,  // UTF-8 with a NUL at the end; count is the number of bytes before it
  OPBRIDGE_KIND_INTS = 4,    // count int64_t
  OPBRIDGE_KIND_FLOATS = 5,  // count double
  OPBRIDGE_KIND_STRINGS = 6, // count opbridge_string
  OPBRIDGE_KIND_TENSOR = 7   // one opbridge_tensor, contiguous
};

// Flags of opbridge_argument.
enum {
  OPBRIDGE_OPTIONAL = 1,
  OPBRIDGE_VARIADIC = 2 // only the last one: any number of tensors of one type, including none
};

typedef struct opbridge_tensor {
  void* data;             // the first element; may be NULL if there is none, or as stated below
  int64_t* sizes;         // rank sizes; read-only for inputs
  const int64_t* strides; // in elements, may be 0 or negative; NULL: contiguous in C order. Outputs are contiguous.
  int32_t rank;
  int32_t dtype;          // OPBRIDGE_ABSENT: an optional input that is not given, an optional output that is unused
} opbridge_tensor;

typedef struct opbridge_string {
  const char* data; // UTF-8 with a NUL at the end
  int64_t size;     // without the NUL
} opbridge_string;

typedef struct opbridge_value {
  const void* data;
  int64_t count; // elements; for a string, bytes
  int32_t kind;
} opbridge_value;

typedef struct opbridge_argument {
  const char* name;
  int32_t flags;
  int32_t type_variable; // index into opbridge_operator.type_variables; -1: the type is dtype
  int32_t dtype;
} opbridge_argument;

typedef struct opbridge_attribute {
  const char* name;
  int32_t kind;
  int32_t required;             // 0: default_value is used if a node has none
  opbridge_value default_value; // of kind NONE if the kernel handles its absence
} opbridge_attribute;

typedef struct opbridge_operator opbridge_operator;
typedef struct opbridge_call opbridge_call;

// Processes [begin, end). Must not throw.
typedef void (*opbridge_body)(void* user, int64_t begin, int64_t end);

// The functions that the host provides to a running kernel. They are called from the thread that called run().
typedef struct opbridge_host {
  // Covers [0, total) with calls of body, possibly in several threads at once, in pieces of at least grain (except the last);
  // returns when all are done.
  void (*parallel_for)(opbridge_call* call, int64_t total, int64_t grain, opbridge_body body, void* user);
  // Memory that is valid until run() returns, aligned to 64 bytes; NULL if there is none left.
  void* (*scratch)(opbridge_call* call, int64_t bytes);
  // Allocates outputs[index], which has a data-dependent size, and fills in its data, rank and sizes. Returns 0, or 1 with
  // a text in call->error.
  int32_t (*allocate_output)(opbridge_call* call, int32_t index, int32_t rank, const int64_t* sizes);
} opbridge_host;

// One call of an operator. The host fills it in for shape() and for run().
struct opbridge_call {
  const opbridge_operator* op;
  // One per declared input, in order, including absent ones; a variadic input has any number of tensors.
  const opbridge_tensor* inputs;
  // The outputs, in the same form. shape(): dtype is set, sizes has room for OPBRIDGE_MAX_RANK, data is NULL, and the
  // function sets rank and sizes. run(): everything is set; data is NULL and rank is 0 while the sizes are data-dependent.
  // An unused output that is not declared optional has memory like any other.
  opbridge_tensor* outputs;
  // One per declared attribute, in order, of its kind (or NONE); defaults are in place.
  const opbridge_value* attributes;
  const opbridge_host* host; // NULL in shape()
  void* host_data;           // the host's own
  int32_t input_count;
  int32_t output_count;
  char error[OPBRIDGE_ERROR_SIZE]; // a NUL-terminated text if shape() or run() returned 1
};

// Returns 0, or 1 with a text in call->error. Must not throw. Several calls may run at once.
typedef int32_t (*opbridge_function)(opbridge_call* call);

// The kernel for one element type per type variable.
typedef struct opbridge_variant {
  const int32_t* dtypes;
  opbridge_function run;
} opbridge_variant;

struct opbridge_operator {
  const char* domain;
  const char* name;
  const char* schema; // as the author wrote it
  const opbridge_argument* inputs;
  const opbridge_argument* outputs;
  const opbridge_attribute* attributes;
  const char* const* type_variables;
  const opbridge_variant* variants;
  int32_t input_count;
  int32_t output_count;
  int32_t attribute_count;
  int32_t type_variable_count;
  int32_t variant_count;
  // Engines may call it before the contents exist: then the inputs' data is NULL, and it fails if it needs the contents.
  opbridge_function shape;
};

typedef struct opbridge_library {
  int32_t abi_version; // OPBRIDGE_ABI_VERSION
  int32_t struct_size; // sizeof(opbridge_library)
  const char* platform; // "linux-x86_64"
  const char* error;    // NULL, or why the operators can't be used
  const opbridge_operator* const* operators;
  int32_t operator_count;
} opbridge_library;

// The function that a library of kernels exports. The result is valid while the library is loaded.
OPBRIDGE_EXPORT const opbridge_library* opbridge_get_library(void);

#ifdef __cplusplus
} // extern "C"
#endif

// NumPy's name of an element type.
OPBRIDGE_INLINE const char* opbridge_dtype_name(int32_t dtype) {
  switch (dtype) {
    case OPBRIDGE_FLOAT32: return "float32";
    case OPBRIDGE_UINT8: return "uint8";
    case OPBRIDGE_INT8: return "int8";
    case OPBRIDGE_UINT16: return "uint16";
    case OPBRIDGE_INT16: return "int16";
    case OPBRIDGE_INT32: return "int32";
    case OPBRIDGE_INT64: return "int64";
    case OPBRIDGE_BOOL: return "bool";
    case OPBRIDGE_FLOAT16: return "float16";
    case OPBRIDGE_FLOAT64: return "float64";
    case OPBRIDGE_UINT32: return "uint32";
    case OPBRIDGE_UINT64: return "uint64";
    case OPBRIDGE_BFLOAT16: return "bfloat16";
    case OPBRIDGE_ABSENT: return "absent";
    default: return "an unknown type";
  }
}

// The bytes of one element; 0 for an unsupported type.
OPBRIDGE_INLINE int64_t opbridge_dtype_size(int32_t dtype) {
  switch (dtype) {
    case OPBRIDGE_UINT8:
    case OPBRIDGE_INT8:
    case OPBRIDGE_BOOL: return 1;
    case OPBRIDGE_UINT16:
    case OPBRIDGE_INT16:
    case OPBRIDGE_FLOAT16:
    case OPBRIDGE_BFLOAT16: return 2;
    case OPBRIDGE_FLOAT32:
    case OPBRIDGE_INT32:
    case OPBRIDGE_UINT32: return 4;
    case OPBRIDGE_FLOAT64:
    case OPBRIDGE_INT64:
    case OPBRIDGE_UINT64: return 8;
    default: return 0;
  }
}

// The type of an argument in a variant.
OPBRIDGE_INLINE int32_t opbridge_argument_dtype(const opbridge_argument* argument, const opbridge_variant* variant) {
  return argument->type_variable < 0 ? argument->dtype : variant->dtypes[argument->type_variable];
}

// The declared argument of the tensor at this position: a variadic last argument has any number of tensors.
OPBRIDGE_INLINE int32_t opbridge_argument_index(int32_t position, int32_t declared) {
  return position < declared ? position : declared - 1;
}

// Whether a variant takes inputs of these types; absent inputs match any type.
OPBRIDGE_INLINE int32_t opbridge_variant_takes(
    const opbridge_operator* op, const opbridge_variant* variant, const opbridge_tensor* inputs, int32_t input_count) {
  for (int32_t i = 0; i < input_count; ++i) {
    const opbridge_argument* argument = &op->inputs[opbridge_argument_index(i, op->input_count)];
    if (inputs[i].dtype != OPBRIDGE_ABSENT && inputs[i].dtype != opbridge_argument_dtype(argument, variant)) return 0;
  }
  return 1;
}

// The first variant that takes inputs of these types; NULL if there is none, or if no input determines an output's type, as
// for a variadic input without tensors.
OPBRIDGE_INLINE const opbridge_variant* opbridge_find_variant(
    const opbridge_operator* op, const opbridge_tensor* inputs, int32_t input_count) {
  const opbridge_variant* found = NULL;
  for (int32_t v = 0; v < op->variant_count; ++v) {
    const opbridge_variant* variant = &op->variants[v];
    if (!opbridge_variant_takes(op, variant, inputs, input_count)) continue;
    if (found == NULL) found = variant;
    for (int32_t i = 0; i < op->output_count; ++i)
      if (opbridge_argument_dtype(&op->outputs[i], variant) != opbridge_argument_dtype(&op->outputs[i], found))
        return NULL;
  }
  return found;
}
