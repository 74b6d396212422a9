// An operator's schema, parsed at compile time: a mistake in it is a compile error with a message.
//
//   schema     domain::name ( parameters ) -> result | -> ( results )
//   parameter  type name | attribute name | attribute name = default
//   result     type name
//   type       Variable | dtype, then nothing, ? (optional) or ... (any number; the last one only)
//   Variable   a word that begins with a capital letter
//   dtype      float16 bfloat16 float32 float64 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64
//   attribute  int | float | string | int[] | float[] | string[] | tensor
//   default    3 | -1e-5 | 'text' | [1, 2] | none
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "opbridge/abi.h"

namespace opbridge::detail {

enum class SchemaError {
  none,
  name,
  parenthesis,
  type,
  parameter_name,
  default_value,
  default_precision,
  input_default,
  order,
  variadic,
  arrow,
  result,
  result_type,
  duplicate,
  too_many,
  ending,
};

inline constexpr int max_arguments = 32;
inline constexpr int max_type_variables = 8;
inline constexpr int max_default_elements = 64;  // the total for all attributes of an operator

struct SchemaArgument {
  std::string_view name;
  int32_t flags = 0;
  int32_t type_variable = -1;
  int32_t dtype = OPBRIDGE_ABSENT;
};

struct SchemaAttribute {
  std::string_view name;
  int32_t kind = OPBRIDGE_KIND_NONE;
  bool required = true;
  bool has_default = false;
  // The range of the default's elements in the Schema's arrays: a number is in both arrays of numbers.
  int default_begin = 0;
  int default_count = 0;
};

struct Schema {
  SchemaError error = SchemaError::none;
  std::string_view domain;
  std::string_view name;
  SchemaArgument inputs[max_arguments];
  SchemaArgument outputs[max_arguments];
  SchemaAttribute attributes[max_arguments];
  std::string_view type_variables[max_type_variables];
  int64_t default_ints[max_default_elements] = {};
  double default_floats[max_default_elements] = {};
  std::string_view default_strings[max_default_elements];
  int input_count = 0;
  int output_count = 0;
  int attribute_count = 0;
  int type_variable_count = 0;
  int default_count = 0;
};

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
constexpr bool is_word(char c) { return is_digit(c) || is_capital(c) || (c >= 'a' && c <= 'z') || c == '_'; }

// A text that is parsed from the front.
struct Cursor {
  std::string_view rest;

  constexpr void skip_spaces() {
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\n' || rest[0] == '\t')) rest.remove_prefix(1);
  }
  constexpr bool take(std::string_view token) {
    skip_spaces();
    if (rest.substr(0, token.size()) != token) return false;
    rest.remove_prefix(token.size());
    return true;
  }
  constexpr bool next_is(char c) {
    skip_spaces();
    return !rest.empty() && rest[0] == c;
  }
  // A word that does not begin with a digit; empty if there is none. In a domain, dots belong to it.
  constexpr std::string_view word(bool dots = false) {
    skip_spaces();
    if (rest.empty() || is_digit(rest[0])) return {};
    size_t size = 0;
    while (size < rest.size() && (is_word(rest[size]) || (dots && rest[size] == '.'))) ++size;
    const std::string_view result = rest.substr(0, size);
    rest.remove_prefix(size);
    return result;
  }
};

constexpr int32_t dtype_by_name(std::string_view name) {
  for (int32_t dtype = OPBRIDGE_FLOAT32; dtype <= OPBRIDGE_BFLOAT16; ++dtype)
    if (opbridge_dtype_size(dtype) != 0 && name == opbridge_dtype_name(dtype)) return dtype;
  return OPBRIDGE_ABSENT;
}

constexpr int32_t kind_by_name(std::string_view name) {
  if (name == "int") return OPBRIDGE_KIND_INT;
  if (name == "float") return OPBRIDGE_KIND_FLOAT;
  if (name == "string") return OPBRIDGE_KIND_STRING;
  if (name == "tensor") return OPBRIDGE_KIND_TENSOR;
  return OPBRIDGE_KIND_NONE;
}

constexpr int32_t list_kind(int32_t kind) {
  if (kind == OPBRIDGE_KIND_INT) return OPBRIDGE_KIND_INTS;
  if (kind == OPBRIDGE_KIND_FLOAT) return OPBRIDGE_KIND_FLOATS;
  if (kind == OPBRIDGE_KIND_STRING) return OPBRIDGE_KIND_STRINGS;
  return OPBRIDGE_KIND_NONE;
}

constexpr int32_t element_kind(int32_t kind) {
  if (kind == OPBRIDGE_KIND_INTS) return OPBRIDGE_KIND_INT;
  if (kind == OPBRIDGE_KIND_FLOATS) return OPBRIDGE_KIND_FLOAT;
  if (kind == OPBRIDGE_KIND_STRINGS) return OPBRIDGE_KIND_STRING;
  return kind;
}

constexpr bool is_list(int32_t kind) { return element_kind(kind) != kind; }

struct Number {
  bool valid = false;
  bool whole = true;     // an integer literal
  bool exact = true;     // value is the double nearest to the literal
  int64_t integer = 0;
  double value = 0;
};

// Takes a number. Up to 2^53 and a power of ten up to 22, one multiplication or division rounds correctly.
constexpr Number take_number(Cursor& cursor) {
  Number number;
  const bool negative = cursor.take("-");
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (cursor.take("inf")) {
    number.valid = true;
    number.whole = false;
    number.value = negative ? -infinity : infinity;
    return number;
  }
  uint64_t digits = 0;
  int exponent = 0;
  std::string_view& rest = cursor.rest;
  while (!rest.empty() && (is_digit(rest[0]) || (rest[0] == '.' && number.whole))) {
    if (rest[0] == '.') {
      number.whole = false;
    } else {
      number.valid = true;
      if (digits > (UINT64_MAX - 9) / 10) number.exact = false;
      else digits = digits * 10 + static_cast<uint64_t>(rest[0] - '0');
      if (!number.whole) --exponent;
    }
    rest.remove_prefix(1);
  }
  if (!rest.empty() && (rest[0] == 'e' || rest[0] == 'E')) {
    number.whole = false;
    rest.remove_prefix(1);
    const bool down = cursor.take("-");
    if (!down) cursor.take("+");
    int written = 0;
    bool any = false;
    for (; !rest.empty() && is_digit(rest[0]); rest.remove_prefix(1)) {
      any = true;
      if (written < 10000) written = written * 10 + (rest[0] - '0');
    }
    if (!any) number.valid = false;
    exponent += down ? -written : written;
  }
  if (!number.valid) return number;
  if (number.whole) {
    if (digits > static_cast<uint64_t>(INT64_MAX)) number.exact = false;
    else number.integer = negative ? -static_cast<int64_t>(digits) : static_cast<int64_t>(digits);
  }
  double value = static_cast<double>(digits);
  if (digits != 0 && exponent != 0) {
    if (digits > (uint64_t{1} << 53) || exponent > 22 || exponent < -22) {
      number.exact = false;
    } else {
      double power = 1;
      for (int i = 0; i < (exponent < 0 ? -exponent : exponent); ++i) power *= 10;
      value = exponent < 0 ? value / power : value * power;
    }
  }
  number.value = negative ? -value : value;
  return number;
}

// Takes a text in single or double quotes, without escapes. Returns false if there is none.
constexpr bool take_quoted(Cursor& cursor, std::string_view& text) {
  cursor.skip_spaces();
  if (cursor.rest.empty() || (cursor.rest[0] != '\'' && cursor.rest[0] != '"')) return false;
  const size_t end = cursor.rest.find(cursor.rest[0], 1);
  if (end == std::string_view::npos) return false;
  text = cursor.rest.substr(1, end - 1);
  cursor.rest.remove_prefix(end + 1);
  return true;
}

constexpr SchemaError read_default_element(Cursor& cursor, Schema& schema, int32_t kind) {
  if (schema.default_count == max_default_elements) return SchemaError::too_many;
  const int index = schema.default_count++;
  if (kind == OPBRIDGE_KIND_STRING)
    return take_quoted(cursor, schema.default_strings[index]) ? SchemaError::none : SchemaError::default_value;
  const Number number = take_number(cursor);
  if (!number.valid || kind == OPBRIDGE_KIND_TENSOR || (kind == OPBRIDGE_KIND_INT && !number.whole))
    return SchemaError::default_value;
  schema.default_ints[index] = number.integer;
  schema.default_floats[index] = number.value;
  return number.exact ? SchemaError::none : SchemaError::default_precision;
}

constexpr SchemaError read_default_list(Cursor& cursor, Schema& schema, int32_t kind) {
  if (!cursor.take("[")) return SchemaError::default_value;
  if (cursor.take("]")) return SchemaError::none;
  do {
    const SchemaError error = read_default_element(cursor, schema, element_kind(kind));
    if (error != SchemaError::none) return error;
  } while (cursor.take(","));
  return cursor.take("]") ? SchemaError::none : SchemaError::default_value;
}

constexpr SchemaError read_default(Cursor& cursor, Schema& schema, SchemaAttribute& attribute) {
  if (!cursor.take("=")) return SchemaError::none;
  attribute.required = false;
  if (cursor.take("none")) return SchemaError::none;
  attribute.has_default = true;
  attribute.default_begin = schema.default_count;
  const SchemaError error = is_list(attribute.kind) ? read_default_list(cursor, schema, attribute.kind)
                                                    : read_default_element(cursor, schema, attribute.kind);
  attribute.default_count = schema.default_count - attribute.default_begin;
  return error;
}

// Reads the marks and the argument's name after a type.
constexpr SchemaError read_argument(Cursor& cursor, Schema& schema, std::string_view type, bool is_input,
                                    SchemaArgument& argument) {
  if (is_capital(type[0])) {
    int variable = 0;
    while (variable < schema.type_variable_count && schema.type_variables[variable] != type) ++variable;
    if (variable == schema.type_variable_count) {
      if (!is_input) return SchemaError::result_type;
      if (variable == max_type_variables) return SchemaError::too_many;
      schema.type_variables[schema.type_variable_count++] = type;
    }
    argument.type_variable = variable;
  } else {
    argument.dtype = dtype_by_name(type);
    if (argument.dtype == OPBRIDGE_ABSENT) return SchemaError::type;
  }
  if (cursor.take("...")) argument.flags = OPBRIDGE_VARIADIC;
  else if (cursor.take("?")) argument.flags = OPBRIDGE_OPTIONAL;
  argument.name = cursor.word();
  return argument.name.empty() ? SchemaError::parameter_name : SchemaError::none;
}

constexpr SchemaError read_parameter(Cursor& cursor, Schema& schema) {
  const std::string_view type = cursor.word();
  if (type.empty()) return SchemaError::type;
  int32_t kind = kind_by_name(type);
  if (kind == OPBRIDGE_KIND_NONE) {
    if (schema.input_count == max_arguments) return SchemaError::too_many;
    if (schema.input_count > 0 && schema.inputs[schema.input_count - 1].flags == OPBRIDGE_VARIADIC)
      return SchemaError::variadic;
    const SchemaError error = read_argument(cursor, schema, type, true, schema.inputs[schema.input_count++]);
    return error == SchemaError::none && cursor.next_is('=') ? SchemaError::input_default : error;
  }
  if (cursor.take("[")) {
    kind = list_kind(kind);
    if (!cursor.take("]") || kind == OPBRIDGE_KIND_NONE) return SchemaError::type;
  }
  if (schema.attribute_count == max_arguments) return SchemaError::too_many;
  SchemaAttribute& attribute = schema.attributes[schema.attribute_count++];
  attribute.kind = kind;
  attribute.name = cursor.word();
  if (attribute.name.empty()) return SchemaError::parameter_name;
  return read_default(cursor, schema, attribute);
}

constexpr SchemaError read_result(Cursor& cursor, Schema& schema) {
  const std::string_view type = cursor.word();
  if (type.empty() || kind_by_name(type) != OPBRIDGE_KIND_NONE) return SchemaError::result;
  if (schema.output_count == max_arguments) return SchemaError::too_many;
  if (schema.output_count > 0 && schema.outputs[schema.output_count - 1].flags == OPBRIDGE_VARIADIC)
    return SchemaError::variadic;
  return read_argument(cursor, schema, type, false, schema.outputs[schema.output_count++]);
}

constexpr SchemaError check_names(const Schema& schema) {
  for (int i = 0; i < schema.input_count; ++i) {
    for (int k = 0; k < i; ++k) {
      if (schema.inputs[k].name == schema.inputs[i].name) return SchemaError::duplicate;
      if (schema.inputs[k].flags == OPBRIDGE_OPTIONAL && schema.inputs[i].flags == 0) return SchemaError::order;
    }
    for (int k = 0; k < schema.attribute_count; ++k)
      if (schema.attributes[k].name == schema.inputs[i].name) return SchemaError::duplicate;
  }
  for (int i = 0; i < schema.attribute_count; ++i)
    for (int k = 0; k < i; ++k)
      if (schema.attributes[k].name == schema.attributes[i].name) return SchemaError::duplicate;
  for (int i = 0; i < schema.output_count; ++i)
    for (int k = 0; k < i; ++k)
      if (schema.outputs[k].name == schema.outputs[i].name) return SchemaError::duplicate;
  return SchemaError::none;
}

constexpr SchemaError read_schema(Cursor& cursor, Schema& schema) {
  schema.domain = cursor.word(true);
  if (schema.domain.empty() || !cursor.take("::")) return SchemaError::name;
  schema.name = cursor.word();
  if (schema.name.empty()) return SchemaError::name;
  if (!cursor.take("(")) return SchemaError::parenthesis;
  if (!cursor.take(")")) {
    do {
      const SchemaError error = read_parameter(cursor, schema);
      if (error != SchemaError::none) return error;
    } while (cursor.take(","));
    if (!cursor.take(")")) return SchemaError::parenthesis;
  }
  if (!cursor.take("->")) return SchemaError::arrow;
  const bool several = cursor.take("(");
  do {
    const SchemaError error = read_result(cursor, schema);
    if (error != SchemaError::none) return error;
  } while (several && cursor.take(","));
  if (several && !cursor.take(")")) return SchemaError::result;
  cursor.skip_spaces();
  return cursor.rest.empty() ? check_names(schema) : SchemaError::ending;
}

constexpr Schema parse_schema(std::string_view text) {
  Schema schema;
  Cursor cursor{text};
  schema.error = read_schema(cursor, schema);
  return schema;
}

// One message per mistake, for static_assert to show.
template <SchemaError error>
constexpr bool require_valid_schema() {
  static_assert(error != SchemaError::name, "opbridge schema: it begins with domain::name, like mylib::my_add");
  static_assert(error != SchemaError::parenthesis, "opbridge schema: the parameters stand in ( ), with commas between them");
  static_assert(error != SchemaError::type,
                "opbridge schema: unknown type; an input's is a type variable (a word with a capital, like T) or a NumPy "
                "dtype (float32, int64, bool), an attribute's is int, float, string, int[], float[], string[] or tensor");
  static_assert(error != SchemaError::parameter_name, "opbridge schema: a name must follow the type, as in: T a");
  static_assert(error != SchemaError::default_value,
                "opbridge schema: a default does not fit its type: int 3, float 0.5, string 'text', int[] [1, 2], or none");
  static_assert(error != SchemaError::default_precision,
                "opbridge schema: a default has too many digits: up to 2^53 and 22 powers of ten are exact, integers up to 2^63");
  static_assert(error != SchemaError::input_default,
                "opbridge schema: inputs have no defaults; an optional one is written T? a");
  static_assert(error != SchemaError::order, "opbridge schema: optional inputs come after the required ones");
  static_assert(error != SchemaError::variadic, "opbridge schema: only the last input and the last output may have ...");
  static_assert(error != SchemaError::arrow, "opbridge schema: -> and the output follow the parameters, as in: -> T y");
  static_assert(error != SchemaError::result, "opbridge schema: outputs are written -> T y, or -> (T values, int64 indices)");
  static_assert(error != SchemaError::result_type,
                "opbridge schema: an output's type variable must be that of an input; otherwise write a dtype, like float32");
  static_assert(error != SchemaError::duplicate, "opbridge schema: two parameters or two outputs have the same name");
  static_assert(error != SchemaError::too_many,
                "opbridge schema: at most 32 inputs, outputs and attributes each, 8 type variables, 64 elements of defaults");
  static_assert(error != SchemaError::ending, "opbridge schema: something follows the outputs; several stand in ( )");
  return error == SchemaError::none;
}

}  // namespace opbridge::detail
