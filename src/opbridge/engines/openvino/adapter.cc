// Adds a library of opbridge kernels to OpenVINO: its extensions, driven only by the table of operators. It is compiled
// together with the kernels into one file, which a program in any language loads with Core::add_extension.
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <openvino/core/extension.hpp>
#include <openvino/frontend/onnx/extension/conversion.hpp>

#include "adapter/attribute_reader.h"
#include "adapter/operation.h"
#include "opbridge/registration.h"

namespace opbridge::openvino {
namespace {

// The inputs of a node, with their positions among the declared ones.
struct GivenInputs {
  ov::OutputVector values;
  std::vector<bool> given;
};

GivenInputs given_inputs(const ov::frontend::NodeContext& node) {
  GivenInputs result;
  for (size_t i = 0; i < node.get_input_size(); ++i) {
    const ov::Output<ov::Node> value = node.get_input(static_cast<int>(i));
    // The frontend's placeholder for an empty name in the model.
    const bool given = std::string("NullNode") != value.get_node()->get_type_name();
    result.given.push_back(given);
    if (given) result.values.push_back(value);
  }
  return result;
}

ov::OutputVector convert(const opbridge_operator& op, const ov::DiscreteTypeInfo& type,
                         const ov::frontend::NodeContext& node) {
  if (op.output_count > 0 && (op.outputs[op.output_count - 1].flags & OPBRIDGE_VARIADIC))
    throw Error(op.domain, "::", op.name, " has any number of outputs, and OpenVINO does not tell how many a node has");
  GivenInputs inputs = given_inputs(node);
  auto attributes = std::make_shared<const Attributes>(AttributeReader(node).read(op));
  const auto operation = std::make_shared<Operation>(op, type, std::move(attributes), inputs.given, inputs.values);
  return operation->outputs();
}

std::vector<ov::Extension::Ptr> extensions() {
  const opbridge_library& library = *detail::library();
  if (library.abi_version != OPBRIDGE_ABI_VERSION)
    throw Error("opbridge kernels: the kernels were built for version ", library.abi_version,
                " of opbridge's kernel ABI, and their adapter for version ", OPBRIDGE_ABI_VERSION);
  if (library.error != nullptr) throw Error("opbridge kernels: ", library.error);
  // OpenVINO keeps references to the types until the process ends.
  static auto& types = *new std::deque<ov::DiscreteTypeInfo>();
  std::vector<ov::Extension::Ptr> result;
  for (int32_t i = 0; i < library.operator_count; ++i) {
    const opbridge_operator& op = *library.operators[i];
    const ov::DiscreteTypeInfo& type = types.emplace_back(op.name, op.domain, &ov::op::Op::get_type_info_static());
    result.push_back(std::make_shared<ov::frontend::onnx::ConversionExtension>(
        op.name, op.domain,
        [&op, &type](const ov::frontend::NodeContext& node) { return convert(op, type, node); }));
  }
  return result;
}

}  // namespace
}  // namespace opbridge::openvino

OPENVINO_CREATE_EXTENSIONS(opbridge::openvino::extensions())
