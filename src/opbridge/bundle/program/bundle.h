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
