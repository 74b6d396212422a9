"""Division with rounding, in integer arithmetic for integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, rewrite
from opbridge.catalog.formulas.element_types import FLOATING, INTEGERS


@decomposition(
    "aten::div.Tensor_mode",
    overrides="torch.onnx divides integers in float32, which has only 24 bits, and floors a rounded quotient",
)
def div_mode(self: Tensor, other: Tensor, *, rounding_mode: str | None) -> Tensor:
    """The quotient, rounded down ("floor") or towards 0 ("trunc"); exact for integers, also above 2**24.

    div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor
    """
    dtype = torch.result_type(self, other)
    if rounding_mode == "floor" and dtype in (*INTEGERS, *FLOATING):
        return torch.floor_divide(self, other)
    if rounding_mode is None or dtype not in INTEGERS:
        return NotImplemented
    a, b = (x.to(dtype) if isinstance(x, Tensor) else torch.scalar_tensor(x, dtype=dtype) for x in (self, other))
    # ONNX's division of integers; aten's divisions all round down or compute in floating point.
    shape = torch.broadcast_shapes(a.shape, b.shape)
    sides = (x if x.dim() == 0 or x.shape == shape else x.expand(shape) for x in (a, b))
    return torch.ops.prims.div.default(*sides)  # type: ignore[no-any-return]


@rewrite("torch.div")
def div_of_sizes(
    original: Callable[..., Tensor], input: Any, other: Any, *, rounding_mode: str | None = None, **options: Any
) -> Any:
    """The quotient of two sizes as a size: ``torch.div(x.shape[1], 2, rounding_mode="trunc")`` is a tensor in PyTorch.

    div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor
    """
    if isinstance(input, torch.SymInt) and type(other) is int and other > 0 and rounding_mode and not options:
        return input // other
    return NotImplemented
