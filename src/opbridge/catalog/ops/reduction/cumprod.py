"""Cumulative products, as an ONNX Scan, or as a custom node with a kernel."""

from __future__ import annotations

from typing import Any, TypeVar, Union

import torch
from onnxscript import BOOL, DOUBLE, FLOAT, INT32, INT64, graph, script
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, kernel_translation, translation
from opbridge.catalog.formulas.element_types import FLOATS, HALVES
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::CumProd", "cumulative.h")

Number = TypeVar("Number", bound=Union[FLOAT, DOUBLE, INT64, INT32])  # noqa: UP007 - onnxscript reads typing.Union
Wide = TypeVar("Wide", bound=Union[DOUBLE, INT64, INT32])  # noqa: UP007


@script()
def _running_products(x: Number, first: Wide) -> tuple[Wide, Number]:  # type: ignore[valid-type]
    """The cumulative products of the rows."""

    @graph()
    def step(product, row):  # type: ignore[no-untyped-def]
        following = product * op.CastLike(row, product)
        shown = op.CastLike(following, row)
        return following, shown

    last, products = op.Scan(first, x, body=step, num_scan_inputs=1)
    return last, products


@translation("aten::cumprod")
def cumprod(self: Any, dim: int, *, dtype: int = -1) -> Any:
    """The cumulative product along ``dim``; int64 for integers unless ``dtype`` is given.

    cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor

    The elements are multiplied one by one and in float64, as in PyTorch: products of blocks could overflow.
    """
    result_type, working = _types(self, dtype)
    x = op.Cast(self, to=working)
    rank = len(self.shape)
    if rank == 0:
        return op.Cast(x, to=result_type)
    axis = dim % rank
    order = [axis, *(other for other in range(rank) if other != axis)]
    rows = op.Transpose(x, perm=order)
    ones = op.Expand(op.Constant(value_int=1), op.Shape(rows, start=1))
    first = op.Cast(ones, to=DOUBLE.dtype if working in FLOATS else working)
    # One additional row, because ONNX Runtime's Scan does not support empty sequences.
    row = op.Unsqueeze(op.Cast(ones, to=working), op.Constant(value_ints=[0]))
    _, products = _running_products(op.Concat(row, rows, axis=0), first)
    products = op.Slice(products, op.Constant(value_ints=[1]), op.Constant(value_ints=[2**62]))
    back = [order.index(place) for place in range(rank)]
    return op.Cast(op.Transpose(products, perm=back), to=result_type)


@kernel_translation("aten::cumprod")
def cumprod_with_kernel(self: Any, dim: int, *, dtype: int = -1) -> Any:
    """``cumprod`` as a custom node with a kernel.

    cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor
    """
    if len(self.shape) == 0:
        return cumprod(self, dim, dtype=dtype)
    result_type, working = _types(self, dtype)
    return op.Cast(custom_node("opbridge::CumProd", op.Cast(self, to=working), dim=dim), to=result_type)


@body_for("opbridge::CumProd")
def body(x: Tensor, dim: int) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return torch.cumprod(x, dim, dtype=x.dtype)


def _types(self: Any, dtype: int) -> tuple[Any, Any]:
    """The element type of the result, and the one in which the elements are given."""
    default = self.dtype if self.dtype in FLOATS else INT64.dtype
    result_type = default if dtype in (None, -1) else dtype
    working = FLOAT.dtype if result_type in HALVES else INT64.dtype if result_type == BOOL.dtype else result_type
    return result_type, working
