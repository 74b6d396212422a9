"""Softmax in an element type other than the input's."""

from __future__ import annotations

from typing import Any

from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation

_WHY = "torch's mapping computes in the input's dtype and casts afterwards"


def _along(self: Any, dim: int, dtype: int, operator: Any) -> Any:
    x = self if dtype in (None, -1) else op.Cast(self, to=dtype)
    if len(self.shape) > 0:
        return operator(x, axis=dim)
    row = operator(op.Reshape(x, op.Constant(value_ints=[1])), axis=0)
    return op.Reshape(row, op.Constant(value_ints=[]))


@translation("aten::softmax.int", overrides=_WHY)
def softmax(self: Any, dim: int, dtype: int = -1) -> Any:
    """exp(x) divided by the sum of exp(x) along ``dim``, computed in ``dtype``.

    softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor
    """
    return _along(self, dim, dtype, op.Softmax)


@translation("aten::log_softmax.int", overrides=_WHY)
def log_softmax(self: Any, dim: int, dtype: int = -1) -> Any:
    """The logarithm of softmax, computed in ``dtype``.

    log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor
    """
    return _along(self, dim, dtype, op.LogSoftmax)
