// OPBRIDGE_OPERATOR, and the table that the library exports.
#pragma once

#include <array>
#include <cstdio>
#include <exception>
#include <string_view>

#include "opbridge/abi.h"
#include "opbridge/call.h"
#include "opbridge/schema.h"
#include "opbridge/types.h"

// Each library has its own table. With default visibility, two loaded libraries would share one.
#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

namespace opbridge {

namespace detail {

template <class... T>
struct TypeList {};

}  // namespace detail

// The element types of a type variable: types<float, double>.
template <class... T>
inline constexpr detail::TypeList<T...> types{};

namespace detail {

// Runs a shape function or a kernel, and converts an exception to the call's error.
template <class Argument, void (*function)(Argument&)>
int32_t guarded(opbridge_call* raw) noexcept {
  raw->error[0] = '\0';
  try {
    Argument call(raw);
    function(call);
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(raw->error, sizeof raw->error, "%s::%s: %s", raw->op->domain, raw->op->name, error.what());
  } catch (...) {
    std::snprintf(raw->error, sizeof raw->error, "%s::%s: an exception that is no std::exception", raw->op->domain,
                  raw->op->name);
  }
  return 1;
}

// The words of a schema: a copy in which a NUL follows every word.
template <size_t Size>
struct Words {
  std::array<char, Size> data{};
  const char* source = nullptr;

  constexpr void end(std::string_view word) { data[static_cast<size_t>(word.data() + word.size() - source)] = '\0'; }
  constexpr const char* find(std::string_view word) const { return data.data() + (word.data() - source); }
};

template <size_t Size>
constexpr Words<Size> make_words(const char* text, const Schema& schema) {
  Words<Size> words;
  words.source = text;
  for (size_t i = 0; i < Size; ++i) words.data[i] = text[i];
  words.end(schema.domain);
  words.end(schema.name);
  for (int i = 0; i < schema.input_count; ++i) words.end(schema.inputs[i].name);
  for (int i = 0; i < schema.output_count; ++i) words.end(schema.outputs[i].name);
  for (int i = 0; i < schema.attribute_count; ++i) words.end(schema.attributes[i].name);
  for (int i = 0; i < schema.type_variable_count; ++i) words.end(schema.type_variables[i]);
  for (const std::string_view& text_default : schema.default_strings)
    if (text_default.data() != nullptr) words.end(text_default);
  return words;
}

// The data of an operator's table entry, generated at compile time.
struct Parts {
  opbridge_argument inputs[max_arguments]{};
  opbridge_argument outputs[max_arguments]{};
  opbridge_attribute attributes[max_arguments]{};
  const char* type_variables[max_type_variables]{};
};

template <class Operator>
struct Described {
  static constexpr const Schema& schema = Operator::opbridge_schema;
  static constexpr auto words =
      make_words<std::string_view(Operator::opbridge_text).size() + 1>(Operator::opbridge_text, schema);

  static constexpr std::array<opbridge_string, max_default_elements> make_strings() {
    std::array<opbridge_string, max_default_elements> result{};
    for (int i = 0; i < schema.default_count; ++i)
      if (schema.default_strings[i].data() != nullptr)
        result[i] = {words.find(schema.default_strings[i]), static_cast<int64_t>(schema.default_strings[i].size())};
    return result;
  }
  static constexpr auto strings = make_strings();

  static constexpr opbridge_value default_value(const SchemaAttribute& attribute) {
    if (!attribute.has_default) return {nullptr, 0, OPBRIDGE_KIND_NONE};
    const int begin = attribute.default_begin;
    switch (attribute.kind) {
      case OPBRIDGE_KIND_STRING: return {strings[begin].data, strings[begin].size, attribute.kind};
      case OPBRIDGE_KIND_STRINGS: return {strings.data() + begin, attribute.default_count, attribute.kind};
      case OPBRIDGE_KIND_INT:
      case OPBRIDGE_KIND_INTS: return {schema.default_ints + begin, attribute.default_count, attribute.kind};
      default: return {schema.default_floats + begin, attribute.default_count, attribute.kind};
    }
  }
  static constexpr opbridge_argument argument(const SchemaArgument& written) {
    return {words.find(written.name), written.flags, written.type_variable, written.dtype};
  }
  static constexpr Parts make_parts() {
    Parts parts;
    for (int i = 0; i < schema.input_count; ++i) parts.inputs[i] = argument(schema.inputs[i]);
    for (int i = 0; i < schema.output_count; ++i) parts.outputs[i] = argument(schema.outputs[i]);
    for (int i = 0; i < schema.attribute_count; ++i) {
      const SchemaAttribute& written = schema.attributes[i];
      parts.attributes[i] = {words.find(written.name), written.kind, written.required, default_value(written)};
    }
    for (int i = 0; i < schema.type_variable_count; ++i)
      parts.type_variables[i] = words.find(schema.type_variables[i]);
    return parts;
  }
  static constexpr Parts parts = make_parts();
};

// All combinations of one type from each list.
template <class Operator, class Chosen, class... Lists>
struct Combinations;

template <class Operator, class... Chosen>
struct Combinations<Operator, TypeList<Chosen...>> {
  static constexpr int count = 1;
  static constexpr int32_t dtypes[] = {dtype_of<Chosen>()..., OPBRIDGE_ABSENT};
  static void append(opbridge_variant*& next) {
    *next++ = {dtypes, &guarded<Call, &Operator::template opbridge_run<Chosen...>>};
  }
  static const void* address() { return Operator::template opbridge_address<Chosen...>(); }
};

template <class Operator, class... Chosen, class... T, class... Rest>
struct Combinations<Operator, TypeList<Chosen...>, TypeList<T...>, Rest...> {
  static constexpr int count = (0 + ... + Combinations<Operator, TypeList<Chosen..., T>, Rest...>::count);
  static void append(opbridge_variant*& next) {
    (Combinations<Operator, TypeList<Chosen..., T>, Rest...>::append(next), ...);
  }
  static const void* address() {
    const void* found = nullptr;
    ((found = found ? found : Combinations<Operator, TypeList<Chosen..., T>, Rest...>::address()), ...);
    return found;
  }
};

// The library's operators, most recently registered first. They are static objects, complete before any call.
struct Registered {
  opbridge_operator op;
  Registered* next;
  const void* kernel;  // the address of its first variant
  const void* file;    // the address of an object that is unique in each compiled file
};

namespace {
[[maybe_unused]] char this_file;
}

inline Registered*& registered() {
  static Registered* first = nullptr;
  return first;
}

template <class Operator, class... Lists>
bool register_operator_of(const void* file, const char* text, const Lists&...) {
  constexpr bool fits = sizeof...(Lists) == Operator::opbridge_schema.type_variable_count;
  static_assert(fits || Operator::opbridge_schema.error != SchemaError::none,
                "opbridge: one opbridge::types<...> per type variable of the schema, in the order it names them");
  if constexpr (fits && Operator::opbridge_schema.error == SchemaError::none) {
    using All = Combinations<Operator, TypeList<>, Lists...>;
    using Entry = Described<Operator>;
    constexpr const Schema& schema = Operator::opbridge_schema;
    static_assert(All::count > 0, "opbridge: opbridge::types<> names no type");
    static opbridge_variant variants[All::count];
    opbridge_variant* next = variants;
    All::append(next);
    static Registered entry;
    entry = {{Entry::words.find(schema.domain), Entry::words.find(schema.name), text, Entry::parts.inputs,
              Entry::parts.outputs, Entry::parts.attributes, Entry::parts.type_variables, variants, schema.input_count,
              schema.output_count, schema.attribute_count, schema.type_variable_count, All::count,
              &guarded<ShapeCall, &Operator::opbridge_shape>},
             registered(), All::address(), file};
    registered() = &entry;
  }
  return fits;
}

inline opbridge_library make_library() {
  static char error[OPBRIDGE_ERROR_SIZE];
  int32_t count = 0;
  for (const Registered* entry = registered(); entry; entry = entry->next) {
    ++count;
    for (const Registered* other = entry->next; other; other = other->next)
      if (std::string_view(entry->op.name) == other->op.name && std::string_view(entry->op.domain) == other->op.domain)
        std::snprintf(error, sizeof error, "the operator %s::%s is declared twice", entry->op.domain, entry->op.name);
      else if (entry->kernel == other->kernel && entry->file != other->file)
        // The linker keeps one of two functions with the same name, so one operator would run the other's kernel.
        std::snprintf(error, sizeof error, "the kernel functions of %s::%s and %s::%s have one name: make them static",
                      other->op.domain, other->op.name, entry->op.domain, entry->op.name);
  }
  static const auto operators = new const opbridge_operator*[static_cast<size_t>(count) + 1]();
  int32_t left = count;
  for (const Registered* entry = registered(); entry; entry = entry->next) operators[--left] = &entry->op;
  return {OPBRIDGE_ABI_VERSION, static_cast<int32_t>(sizeof(opbridge_library)), OPBRIDGE_SYSTEM "-" OPBRIDGE_MACHINE,
          error[0] ? error : nullptr, operators, count};
}

// The result of opbridge_get_library; never that of another loaded library.
inline const opbridge_library* library() {
  static const opbridge_library result = make_library();
  return &result;
}

}  // namespace detail
}  // namespace opbridge

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

extern "C" OPBRIDGE_EXPORT inline const opbridge_library* opbridge_get_library(void) {
  return opbridge::detail::library();
}

// The schema is followed by the lists of types. Without any, the kernel is not a template and has no template arguments;
// the 41st of these arguments distinguishes the cases.
#define OPBRIDGE_DETAIL_PICK(                                                                                          \
    a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24,     \
    a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39, a40,                                    \
    picked, ...)                                                                                                       \
  picked
#define OPBRIDGE_DETAIL_CALL(...)                                                                                      \
  OPBRIDGE_DETAIL_PICK(                                                                                                \
      __VA_ARGS__,                                                                                                     \
      <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>,      \
      <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>,      \
      <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>,      \
      <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>, <Types...>,      \
      <Types...>, <Types...>, <Types...>,                                                                              \
      , )
#define OPBRIDGE_DETAIL_FIRST(first, ...) first
#define OPBRIDGE_DETAIL_JOIN(a, b) a##b
#define OPBRIDGE_DETAIL_NAME(prefix, line) OPBRIDGE_DETAIL_JOIN(prefix, line)

// OPBRIDGE_OPERATOR(kernel, shape function, schema), and for each type variable of the schema an opbridge::types<...>.
// The members have a prefix, because within the struct a member named as the kernel would be called in its place.
#define OPBRIDGE_OPERATOR(kernel, shape_function, ...)                                                                 \
  namespace {                                                                                                          \
  struct OPBRIDGE_DETAIL_NAME(opbridge_operator_, __LINE__) {                                                          \
    static constexpr const char* opbridge_text = OPBRIDGE_DETAIL_FIRST(__VA_ARGS__, );                                 \
    static constexpr ::opbridge::detail::Schema opbridge_schema = ::opbridge::detail::parse_schema(opbridge_text);     \
    static_assert(::opbridge::detail::require_valid_schema<opbridge_schema.error>());                                  \
    static void opbridge_shape(::opbridge::ShapeCall& call) { shape_function(call); }                                  \
    template <class... Types>                                                                                          \
    static void opbridge_run(::opbridge::Call& call) {                                                                 \
      kernel OPBRIDGE_DETAIL_CALL(__VA_ARGS__)(call);                                                                  \
    }                                                                                                                  \
    template <class... Types>                                                                                          \
    static const void* opbridge_address() {                                                                            \
      void (*const function)(::opbridge::Call&) = kernel OPBRIDGE_DETAIL_CALL(__VA_ARGS__);                            \
      return reinterpret_cast<const void*>(function);                                                                  \
    }                                                                                                                  \
  };                                                                                                                   \
  [[maybe_unused]] const bool OPBRIDGE_DETAIL_NAME(opbridge_registered_, __LINE__) =                                   \
      ::opbridge::detail::register_operator_of<OPBRIDGE_DETAIL_NAME(opbridge_operator_, __LINE__)>(                    \
          &::opbridge::detail::this_file, __VA_ARGS__);                                                                \
  }
