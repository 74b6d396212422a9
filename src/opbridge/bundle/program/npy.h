// Reads and writes .npy files: contiguous arrays in C order of little-endian numbers.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace npy {

struct Array {
  std::string dtype;  // as NumPy writes it: "<f4", "|b1"
  std::vector<int64_t> shape;
  std::vector<char> bytes;
};

// The text between two others in a header.
inline std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t start = text.find(before);
  const size_t end = start == std::string::npos ? start : text.find(after, start + before.size());
  if (end == std::string::npos) throw std::runtime_error("not a .npy file of numbers");
  return text.substr(start + before.size(), end - start - before.size());
}

inline Array read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> all{std::istreambuf_iterator<char>(file), {}};
  if (all.size() < 12 || std::string(all.data(), 6) != "\x93NUMPY") throw std::runtime_error(path + " is not a .npy file");
  const size_t wide = all[6] == 1 ? 2 : 4;  // the bytes of the header's length
  size_t length = 0;
  for (size_t i = 0; i < wide; ++i) length |= static_cast<size_t>(static_cast<unsigned char>(all[8 + i])) << (8 * i);
  const size_t start = 8 + wide + length;
  if (start > all.size()) throw std::runtime_error(path + " is truncated");
  const std::string header(all.data() + 8 + wide, length);
  if (between(header, "'fortran_order': ", ",") != "False") throw std::runtime_error(path + " is not in C order");

  Array array;
  array.dtype = between(header, "'descr': '", "'");
  const std::string sizes = between(header, "'shape': (", ")");
  size_t bytes = std::stoul(array.dtype.substr(2));
  for (size_t at = sizes.find_first_of("0123456789"); at != std::string::npos;) {
    array.shape.push_back(std::stoll(sizes.substr(at)));
    bytes *= static_cast<size_t>(array.shape.back());
    at = sizes.find_first_of("0123456789", sizes.find(',', at));
  }
  array.bytes.assign(all.begin() + static_cast<std::ptrdiff_t>(start), all.end());
  if (array.bytes.size() != bytes) throw std::runtime_error(path + " is truncated");
  return array;
}

inline void write(const std::string& path, const Array& array) {
  std::string header = "{'descr': '" + array.dtype + "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : array.shape) header += std::to_string(size) + ",";
  header += ")}";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8);
  file.put(static_cast<char>(header.size() & 255)).put(static_cast<char>(header.size() >> 8));
  file << header;
  file.write(array.bytes.data(), static_cast<std::streamsize>(array.bytes.size()));
  if (!file.flush()) throw std::runtime_error("can't write " + path);
}

// The file of an output.
inline std::string file_of(std::string name) {
  for (char& c : name)
    if (c == '/') c = '_';
  return name + ".npy";
}

}  // namespace npy
