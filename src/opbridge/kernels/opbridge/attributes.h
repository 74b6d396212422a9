// For hosts: the attributes of a node in the form that kernels take.
#pragma once

#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "opbridge/abi.h"
#include "opbridge/error.h"

namespace opbridge {

// The attributes of a node, in the order of the operator's table, with their memory.
class Attributes {
 public:
  std::vector<opbridge_value> values;

  void set_default(const opbridge_operator& op, const opbridge_attribute& attribute) {
    if (attribute.required)
      throw Error(op.domain, "::", op.name, ": the node has no attribute '", attribute.name, "', which is required");
    values.push_back(attribute.default_value);
  }
  void set_ints(std::vector<int64_t> given, int32_t kind) {
    const auto& kept = ints_.emplace_back(std::move(given));
    values.push_back({kept.data(), static_cast<int64_t>(kept.size()), kind});
  }
  void set_floats(const std::vector<float>& given, int32_t kind) { set_doubles({given.begin(), given.end()}, kind); }
  void set_doubles(std::vector<double> given, int32_t kind) {
    const auto& kept = floats_.emplace_back(std::move(given));
    values.push_back({kept.data(), static_cast<int64_t>(kept.size()), kind});
  }
  void set_string(std::string given) {
    const auto& kept = texts_.emplace_back(std::move(given));
    values.push_back({kept.c_str(), static_cast<int64_t>(kept.size()), OPBRIDGE_KIND_STRING});
  }
  void set_strings(std::vector<std::string> given) {
    auto& kept = strings_.emplace_back();
    for (std::string& text : given) {
      const std::string& own = texts_.emplace_back(std::move(text));
      kept.push_back({own.c_str(), static_cast<int64_t>(own.size())});
    }
    values.push_back({kept.data(), static_cast<int64_t>(kept.size()), OPBRIDGE_KIND_STRINGS});
  }
  void set_tensor(const void* data, int64_t bytes, std::vector<int64_t> sizes, int32_t dtype) {
    auto& memory = memory_.emplace_back(static_cast<size_t>(bytes / 16 + 1));
    if (bytes > 0) std::memcpy(memory.data(), data, static_cast<size_t>(bytes));
    auto& kept = ints_.emplace_back(std::move(sizes));
    tensors_.push_back({memory.data(), kept.data(), nullptr, static_cast<int32_t>(kept.size()), dtype});
    values.push_back({&tensors_.back(), 1, OPBRIDGE_KIND_TENSOR});
  }

 private:
  struct alignas(16) Block {
    char bytes[16];
  };
  std::deque<std::vector<int64_t>> ints_;
  std::deque<std::vector<double>> floats_;
  std::deque<std::string> texts_;
  std::deque<std::vector<opbridge_string>> strings_;
  std::deque<std::vector<Block>> memory_;
  std::deque<opbridge_tensor> tensors_;
};

inline const char* kind_name(int32_t kind) {
  static const char* const names[] = {"nothing",        "an int",           "a float",           "a string",
                                      "a list of ints", "a list of floats", "a list of strings", "a tensor"};
  return names[kind];
}

}  // namespace opbridge
