"""The running maximum and where it was met, as an ONNX Loop of log2(length) steps."""

from __future__ import annotations

from typing import Any, TypeVar, Union

from onnxscript import BFLOAT16, BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT16, INT32, INT64, UINT8, script
from onnxscript import opset18 as op

from opbridge.spec import translation

# onnxscript reads typing.Union, and not the | of types.
Element = TypeVar("Element", bound=Union[FLOAT, DOUBLE, FLOAT16, BFLOAT16, INT64, INT32, INT16, INT8, UINT8])  # noqa: UP007


@script()
def _running_maximum(x: Element, axis: int) -> tuple[Element, INT64]:  # type: ignore[no-untyped-def, valid-type]
    """After k rounds each element holds the best of the 2**k up to it; to see one twice does no harm."""
    one = op.Constant(value_int=1)
    zero = op.Constant(value_int=0)
    length = op.Squeeze(op.Gather(op.Shape(x), op.Constant(value_int=axis)))
    position = op.Range(zero, length, one)
    best = x
    index = op.CumSum(op.Expand(one, op.Shape(x)), op.Constant(value_int=axis)) - one
    reach = one
    unfinished = op.Less(reach, length)
    while unfinished:
        source = op.Max(position - reach, zero)
        earlier = op.Gather(best, source, axis=axis)
        earlier_index = op.Gather(index, source, axis=axis)
        is_nan = op.Not(op.Equal(best, best))
        keeps = op.Or(op.GreaterOrEqual(best, earlier), is_nan)
        index = op.Where(keeps, index, earlier_index)
        best = op.Where(keeps, best, earlier)
        reach = reach + reach
        unfinished = op.Less(reach, length)
    return best, index


@translation("aten::cummax")
def cummax(self: Any, dim: int) -> Any:
    """The largest element so far along ``dim``, and the position of its latest occurrence; NaN counts as the largest.

    cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)

    Recursive doubling (Hillis and Steele, "Data parallel algorithms", 1986): O(n log n) work, a graph whose size does
    not depend on n, and no matrix of all pairs.
    """
    if len(self.shape) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    axis = dim % len(self.shape)
    if self.dtype != BOOL.dtype:
        return _running_maximum(self, axis=axis)
    values, indices = _running_maximum(op.Cast(self, to=INT32.dtype), axis=axis)
    return op.Cast(values, to=BOOL.dtype), indices
