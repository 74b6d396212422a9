"""Gradients of SiLU and Mish: torch has decompositions of them, but ``run_decompositions`` does not apply these."""

from __future__ import annotations

from typing import Any

from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation


@translation("aten::silu_backward")
def silu_backward(grad_output: Any, self: Any) -> Any:
    """``grad_output`` times the derivative of x sigmoid(x): sigmoid(x) (1 + x (1 - sigmoid(x))).

    silu_backward(Tensor grad_output, Tensor self) -> Tensor
    """
    sigmoid, one = op.Sigmoid(self), op.CastLike(op.Constant(value_float=1.0), self)
    slope = op.Mul(sigmoid, op.Add(one, op.Mul(self, op.Sub(one, sigmoid))))
    return op.Mul(grad_output, slope)


@translation("aten::mish_backward")
def mish_backward(grad_output: Any, self: Any) -> Any:
    """``grad_output`` times the derivative of x t, with t = tanh(softplus(x)): t + x sigmoid(x) (1 - t^2).

    mish_backward(Tensor grad_output, Tensor self) -> Tensor
    """
    tanh, one = op.Tanh(op.Softplus(self)), op.CastLike(op.Constant(value_float=1.0), self)
    rest = op.Mul(op.Sigmoid(self), op.Sub(one, op.Mul(tanh, tanh)))
    return op.Mul(grad_output, op.Add(tanh, op.Mul(self, rest)))
