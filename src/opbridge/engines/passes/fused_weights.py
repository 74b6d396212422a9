"""Gives fused weights the element type of the model.

The optimizer of torch.onnx fuses a batch normalization into the convolution before it. It computes with NumPy, whose
bfloat16 becomes float32 beside a Python number, so that weights and bias become float32.
"""

from __future__ import annotations

import onnx_ir as ir

from opbridge.onnx_model.scopes import all_nodes

__all__ = ["FUSED", "FusedWeightsPass"]

FUSED = ("Conv", "ConvTranspose", "Gemm")
"""The operators into which the optimizer of torch.onnx fuses a batch normalization."""


class FusedWeightsPass(ir.passes.InPlacePass):
    """Convert constant weights and biases that have another type than what they are multiplied with."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place; nodes whose types agree are not changed."""
        count = 0
        for node in all_nodes(model):
            if node.op_type in FUSED and not node.domain and node.inputs[0] is not None:
                count += sum(_convert(value, node.inputs[0].dtype) for value in node.inputs[1:])
        return ir.passes.PassResult(model, count > 0)


def _convert(value: ir.Value | None, dtype: ir.DataType | None) -> bool:
    if value is None or value.const_value is None or dtype is None or value.const_value.dtype == dtype:
        return False
    array = value.const_value.numpy().astype(dtype.numpy())
    value.const_value = ir.tensor(array, dtype=dtype, name=value.name)
    value.type = ir.TensorType(dtype)
    return True
