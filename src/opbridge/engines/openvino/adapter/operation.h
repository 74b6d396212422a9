// An operator of a library of kernels as an operator of OpenVINO: one class for all, driven by the table.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <openvino/op/constant.hpp>
#include <openvino/op/op.hpp>

#include "element_types.h"
#include "opbridge/attributes.h"
#include "opbridge/error.h"
#include "run.h"

namespace opbridge::openvino {

class Operation : public ov::op::Op {
 public:
  Operation(const opbridge_operator& op, const ov::DiscreteTypeInfo& type, std::shared_ptr<const Attributes> attributes,
            std::vector<bool> given, const ov::OutputVector& inputs, const opbridge_variant* variant = nullptr)
      : ov::op::Op(inputs), op_(op), type_(type), attributes_(std::move(attributes)), given_(std::move(given)),
        variant_(variant) {
    constructor_validate_and_infer_types();
  }

  const ov::DiscreteTypeInfo& get_type_info() const override { return type_; }

  std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override {
    return std::make_shared<Operation>(op_, type_, attributes_, given_, inputs, variant_);
  }

  bool visit_attributes(ov::AttributeVisitor&) override { return true; }
  bool has_evaluate() const override { return true; }
  // A kernel need not be deterministic, so it must not be folded.
  bool can_constant_fold(const ov::OutputVector&) const override { return false; }

  void validate_and_infer_types() override {
    // The model's types select the variant. The plugin narrows them later, and Run widens them again.
    if (variant_ == nullptr) variant_ = find_variant();
    const std::vector<ov::PartialShape> shapes = infer_shapes();
    set_output_size(static_cast<size_t>(op_.output_count));
    for (int32_t i = 0; i < op_.output_count; ++i)
      set_output_type(static_cast<size_t>(i), element_of_dtype(opbridge_argument_dtype(&op_.outputs[i], variant_)),
                      shapes[static_cast<size_t>(i)]);
  }

  bool evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const override {
    Run(op_, *variant_, *attributes_, given_, outputs, inputs).run();
    return true;
  }

 private:
  const opbridge_variant* find_variant() const {
    std::vector<opbridge_tensor> tensors(given_.size());
    size_t next = 0;
    for (size_t i = 0; i < given_.size(); ++i) {
      tensors[i] = {nullptr, nullptr, nullptr, 0, OPBRIDGE_ABSENT};
      if (given_[i]) tensors[i].dtype = dtype_of_element(get_input_element_type(next++));
    }
    const opbridge_variant* found =
        opbridge_find_variant(&op_, tensors.data(), static_cast<int32_t>(tensors.size()));
    if (found == nullptr) throw Error(op_.domain, "::", op_.name, " has no kernel for ", input_types());
    return found;
  }

  std::string input_types() const {
    std::string result;
    for (size_t i = 0; i < get_input_size(); ++i)
      result += (i == 0 ? "" : ", ") + get_input_element_type(i).to_string();
    return result.empty() ? "no input at all" : result;
  }

  // The sizes of the outputs if those of all inputs are known; otherwise the ranks of the outputs for trial sizes, since
  // the CPU plugin takes no output of unknown rank.
  std::vector<ov::PartialShape> infer_shapes() const {
    bool known = true;
    for (size_t i = 0; i < get_input_size(); ++i) {
      if (get_input_partial_shape(i).rank().is_dynamic())
        return std::vector<ov::PartialShape>(static_cast<size_t>(op_.output_count), ov::PartialShape::dynamic());
      known = known && get_input_partial_shape(i).is_static();
    }
    std::string problem;
    for (const bool contents : {false, true})
      for (const int64_t stand_in : stand_ins()) {
        ShapeInference inference(op_, *variant_, *attributes_);
        std::vector<std::vector<char>> zeros;
        size_t port = 0;
        for (size_t i = 0; i < given_.size(); ++i) {
          if (given_[i]) add_input(inference, i, port++, stand_in, contents ? &zeros : nullptr);
          else inference.add_absent();
        }
        if (inference.run()) return shapes_of(inference, known && !contents);
        if (problem.empty()) problem = inference.error();
      }
    throw Error(problem);
  }

  std::vector<ov::PartialShape> shapes_of(const ShapeInference& inference, bool known) const {
    std::vector<ov::PartialShape> shapes;
    for (size_t i = 0; i < static_cast<size_t>(op_.output_count); ++i) {
      const SizeSpan sizes = inference.sizes(i);
      std::vector<ov::Dimension> dimensions(static_cast<size_t>(sizes.size()), ov::Dimension::dynamic());
      for (int64_t axis = 0; known && axis < sizes.size(); ++axis)
        if (sizes[axis] >= 0) dimensions[static_cast<size_t>(axis)] = sizes[axis];
      shapes.emplace_back(dimensions);
    }
    return shapes;
  }

  // The trial values of an unknown size: one that may equal another size, or one that is broadcast.
  std::vector<int64_t> stand_ins() const {
    std::vector<int64_t> result{6, 1};
    for (size_t i = 0; i < get_input_size(); ++i)
      for (const ov::Dimension& dimension : get_input_partial_shape(i))
        if (dimension.is_static()) result.push_back(dimension.get_length());
    return result;
  }

  void add_input(ShapeInference& inference, size_t position, size_t port, int64_t stand_in,
                 std::vector<std::vector<char>>* zeros) const {
    std::vector<int64_t> sizes;
    for (const ov::Dimension& dimension : get_input_partial_shape(port))
      sizes.push_back(dimension.is_static() ? dimension.get_length() : stand_in);
    const int32_t declared = opbridge_argument_index(static_cast<int32_t>(position), op_.input_count);
    const int32_t dtype = opbridge_argument_dtype(&op_.inputs[declared], variant_);
    const bool as_stated = same_bytes(dtype, dtype_of_element(get_input_element_type(port)));
    const auto constant = ov::as_type_ptr<ov::op::v0::Constant>(get_input_node_shared_ptr(port));
    const void* data = constant != nullptr && as_stated ? constant->get_data_ptr() : nullptr;
    if (data == nullptr && zeros != nullptr) {
      const int64_t count = element_count(SizeSpan(sizes.data(), static_cast<int64_t>(sizes.size())));
      // Only small inputs determine shapes.
      if (count <= 4096) data = zeros->emplace_back(static_cast<size_t>(count * 8 + 8)).data();
    }
    inference.add(std::move(sizes), dtype, data);
  }

  const opbridge_operator& op_;
  const ov::DiscreteTypeInfo& type_;
  std::shared_ptr<const Attributes> attributes_;
  std::vector<bool> given_;  // whether each input that the node lists is present
  const opbridge_variant* variant_;
};

}  // namespace opbridge::openvino
