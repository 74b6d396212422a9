"""Reduction of slices into indexed slices, as ONNX ScatterND."""

from __future__ import annotations

from typing import Any

from onnxscript import INT64
from onnxscript import opset18 as op

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import translation
from opbridge.catalog.formulas.element_types import FLOATS
from opbridge.catalog.ops.indexing.scatter_reduce import divided, neutral

_REDUCTIONS = {"mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


@translation("aten::index_reduce")
def index_reduce(self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    """``self`` with every slice of ``source`` reduced into the slice selected by ``index``.

    index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor

    The mean is the sum divided by the count, rounded down for integers. A maximum or minimum propagates NaN.
    """
    rank = len(self.shape)
    flat = op.Constant(value_ints=[-1])
    rows = self if rank else op.Reshape(self, flat)
    values = source if len(source.shape) else op.Reshape(source, flat)
    axis = dim % max(rank, 1)
    order = [axis, *(other for other in range(rank) if other != axis)]
    if axis:
        rows, values = (op.Transpose(x, perm=order) for x in (rows, values))
    places = op.Reshape(op.Cast(index, to=INT64.dtype), op.Constant(value_ints=[-1, 1]))
    result = _combined(rows, places, values, max(rank, 1), reduce, include_self, self.dtype)
    if axis:
        result = op.Transpose(result, perm=[order.index(place) for place in range(rank)])
    return result if rank else op.Reshape(result, op.Constant(value_ints=[]))


def _combined(rows: Any, places: Any, values: Any, rank: int, reduce: str, include_self: bool, dtype: Any) -> Any:
    """The reduction along the first of ``rank`` axes."""
    count = _counted(rows, places, rank)
    is_touched = op.Greater(count, op.Constant(value_int=0))
    start = rows if include_self else op.Where(is_touched, neutral(reduce, dtype), rows)
    result = op.ScatterND(start, places, values, reduction=_REDUCTIONS[reduce])
    if reduce == "mean":
        one = op.Constant(value_int=1)
        share = op.Max(op.Add(count, one) if include_self else count, one)
        return divided(result, op.Cast(share, to=dtype), dtype)
    if reduce == "prod" or dtype not in FLOATS or not keeps_nan():
        return result
    # Engines differ in the maximum of NaN; a sum propagates it.
    return op.Add(result, op.ScatterND(_only_nan(start), places, _only_nan(values), reduction="add"))


def _counted(rows: Any, places: Any, rank: int) -> Any:
    """The number of slices reduced into each slice, with broadcastable axes."""
    ones = op.Expand(op.Constant(value_int=1), op.Shape(places, start=0, end=1))
    none = op.Expand(op.Constant(value_int=0), op.Shape(rows, start=0, end=1))
    count = op.ScatterND(none, places, ones, reduction="add")
    return op.Reshape(count, op.Constant(value_ints=[-1] + [1] * (rank - 1)))


def _only_nan(x: Any) -> Any:
    return op.Where(op.IsNaN(x), x, op.CastLike(op.Constant(value_float=0.0), x))
