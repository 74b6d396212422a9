// Runs the model of a bundle with OpenVINO: run_openvino BUNDLE NAME=FILE.npy ...
// Each output is written to NAME.npy in the current folder.
#include <algorithm>
#include <iostream>
#include <stdexcept>

#include <openvino/openvino.hpp>

#include "bundle.h"
#include "npy.h"

// A tensor with the content of an array.
ov::Tensor to_tensor(const npy::Array& array, const ov::element::Type& type) {
  ov::Tensor tensor(type, ov::Shape(array.shape.begin(), array.shape.end()));
  std::copy(array.bytes.begin(), array.bytes.end(), static_cast<char*>(tensor.data()));
  return tensor;
}

npy::Array to_array(const ov::Tensor& tensor, const std::string& dtype) {
  const ov::Shape shape = tensor.get_shape();
  const char* bytes = static_cast<const char*>(tensor.data());
  return {dtype, {shape.begin(), shape.end()}, {bytes, bytes + tensor.get_byte_size()}};
}

int main(int argc, char** argv) try {
  if (argc < 2) throw std::runtime_error("the first argument is the folder of the bundle");
  const std::string folder = std::string(argv[1]) + "/";
  const auto arrays = bundle::read_arguments(argc - 2, argv + 2);

  ov::Core core;
  if (!bundle::library.empty()) core.add_extension(folder + bundle::library);
  // By default OpenVINO computes in bfloat16 on processors that support it.
  ov::CompiledModel model = core.compile_model(core.read_model(folder + bundle::model), "CPU",
                                               ov::hint::inference_precision(ov::element::f32));
  ov::InferRequest request = model.create_infer_request();
  for (size_t i = 0; i < bundle::inputs.size(); ++i)
    request.set_input_tensor(i, to_tensor(bundle::input(arrays, i), model.input(i).get_element_type()));
  request.infer();
  for (size_t i = 0; i < bundle::outputs.size(); ++i) {
    const auto& [name, dtype] = bundle::outputs[i];
    npy::write(npy::file_of(name), to_array(request.get_output_tensor(i), dtype));
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
