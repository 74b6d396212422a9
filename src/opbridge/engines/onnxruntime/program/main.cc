// Runs the model of a bundle with ONNX Runtime: run_onnxruntime BUNDLE NAME=FILE.npy ...
// Each output is written to NAME.npy in the current folder.
#include <iostream>

#include "bundle.h"
#include "npy.h"
#include "session.h"

int main(int argc, char** argv) try {
  if (argc < 2) throw std::runtime_error("the first argument is the folder of the bundle");
  const std::string folder = std::string(argv[1]) + "/";
  const auto given = bundle::read_arguments(argc - 2, argv + 2);

  std::vector<const char*> inputs, outputs;
  std::vector<npy::Array> arrays;
  std::vector<std::string> dtypes;
  for (size_t i = 0; i < bundle::inputs.size(); ++i) {
    inputs.push_back(bundle::inputs[i].name);
    arrays.push_back(bundle::input(given, i));
  }
  for (const auto& [name, dtype] : bundle::outputs) {
    outputs.push_back(name);
    dtypes.push_back(dtype);
  }

  opbridge::onnxruntime::Session session(folder + bundle::model,
                                         bundle::library.empty() ? "" : folder + bundle::library);
  const std::vector<npy::Array> found = session.run(inputs, arrays, outputs, dtypes);
  for (size_t i = 0; i < found.size(); ++i) npy::write(npy::file_of(outputs[i]), found[i]);
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
