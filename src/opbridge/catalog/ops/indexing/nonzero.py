"""The indices of nonzero elements."""

from __future__ import annotations

from typing import Any

from onnxscript import BOOL, DOUBLE, INT64
from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation


def _places(self: Any) -> Any:
    """One row of indices per nonzero element; no columns for rank 0."""
    if len(self.shape) > 0:
        # Engines support NonZero only for few types.
        found = op.Cast(self, to=BOOL.dtype) if self.dtype == DOUBLE.dtype else self
        return op.Transpose(op.NonZero(found), perm=[1, 0])
    is_set = op.Cast(op.Cast(self, to=9), to=INT64.dtype)
    shape = op.Concat(op.Reshape(is_set, op.Constant(value_ints=[1])), op.Constant(value_ints=[0]), axis=0)
    return op.Expand(op.Constant(value_int=0), shape)


@translation("aten::nonzero", overrides="torch's mapping returns a column for a tensor of rank 0, which has no axes")
def nonzero(self: Any) -> Any:
    """The indices of nonzero elements, one row per element.

    nonzero(Tensor self) -> Tensor
    """
    return _places(self)


@translation("aten::nonzero_static")
def nonzero_static(self: Any, *, size: int, fill_value: int = -1) -> Any:
    """The indices of the first ``size`` nonzero elements, padded with rows of ``fill_value``.

    nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor
    """
    rank = len(self.shape)
    wanted = op.Reshape(size, op.Constant(value_ints=[1])) if hasattr(size, "dtype") else op.Constant(value_ints=[size])
    shape = op.Concat(wanted, op.Constant(value_ints=[rank]), axis=0)
    fill = op.Expand(op.Constant(value_int=fill_value), shape)
    rows = op.Concat(_places(self), fill, axis=0)
    return op.Slice(rows, op.Constant(value_ints=[0]), wanted, op.Constant(value_ints=[0]))
