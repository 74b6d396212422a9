"""``repeat_interleave`` of positions, and by a dynamic number."""

from __future__ import annotations

from typing import Any

from onnxscript import INT64
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, translation


@translation("aten::repeat_interleave.Tensor", overrides="torch's mapping does not support output_size")
def repeat_interleave(repeats: Any, *, output_size: Any = None) -> Any:
    """0 repeated as often as the first element states, then 1 as often as the second, and so on.

    repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor

    A mark is set at the end of the repetitions of each element, and the cumulative sum of the marks is the result. As
    in PyTorch, ``output_size`` must be the sum of the repetitions.
    """
    counts = op.Cast(repeats, to=INT64.dtype)
    zero, one = op.Constant(value_ints=[0]), op.Constant(value_ints=[1])
    ends = op.CumSum(counts, op.Constant(value_int=0))
    total = op.ReduceSum(counts, zero, keepdims=1)
    marks = op.ScatterElements(
        op.Cast(op.ConstantOfShape(op.Add(total, one)), to=INT64.dtype),
        ends,
        op.Expand(one, op.Shape(counts)),
        axis=0,
        reduction="add",
    )
    # The last marks are after the end.
    return op.Cast(op.Slice(op.CumSum(marks, op.Constant(value_int=0)), zero, total), to=repeats.dtype)


@decomposition("aten::repeat_interleave.self_int", overrides="torch's mapping does not repeat by a dynamic number")
def repeat_interleave_by_number(
    self: Tensor, repeats: Any, dim: int | None = None, *, output_size: Any = None
) -> Tensor:
    """Each element along ``dim``, or of the flattened tensor, ``repeats`` times.

    repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor
    """
    if isinstance(repeats, int):
        return NotImplemented
    x = self.flatten() if dim is None else self
    axis = 0 if dim is None else dim % self.dim()
    sizes = [-1] * (x.dim() + 1)
    sizes[axis + 1] = repeats
    return x.unsqueeze(axis + 1).expand(sizes).flatten(axis, axis + 1)
