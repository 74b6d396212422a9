// What the bundle contains for $engine. Written by `opbridge new-app`.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "npy.h"

namespace bundle {

struct Value {
  const char* name;
  const char* dtype;
};

inline const std::string model = $model;
inline const std::string library = $library;  // of kernels; empty if there is none
inline const std::vector<Value> inputs = {$inputs};
inline const std::vector<Value> outputs = {$outputs};

// The arrays of arguments NAME=FILE.npy, by name. A name may contain "=".
inline std::map<std::string, npy::Array> read_arguments(int count, char** arguments) {
  std::map<std::string, npy::Array> arrays;
  for (int i = 0; i < count; ++i) {
    const std::string argument = arguments[i];
    std::string longest;
    for (const auto& [name, dtype] : inputs) {
      const std::string start = std::string(name) + "=";
      if (start.size() > longest.size() && argument.compare(0, start.size(), start) == 0) longest = start;
    }
    if (longest.empty()) throw std::runtime_error(argument + " is not NAME=FILE.npy with the name of an input");
    arrays[longest.substr(0, longest.size() - 1)] = npy::read(argument.substr(longest.size()));
  }
  return arrays;
}

// The array of an input.
inline const npy::Array& input(const std::map<std::string, npy::Array>& arrays, size_t index) {
  const auto& [name, dtype] = inputs[index];
  const auto found = arrays.find(name);
  if (found == arrays.end()) throw std::runtime_error(std::string("add ") + name + "=FILE.npy");
  if (found->second.dtype != dtype)
    throw std::runtime_error(std::string(name) + " is an array of " + found->second.dtype + ", not of " + dtype);
  return found->second;
}

}  // namespace bundle
