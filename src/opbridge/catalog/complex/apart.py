"""Operators that apply to both parts separately: those that move, select or add elements."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.complex.pairs import joined, parts, real_type
from opbridge.catalog.complex.rules import complex_rule

_ELEMENTS = {"self", "src", "source", "value", "values", "other", "input", "tensors", "fill_value"}
"""The arguments with elements; other arguments select elements and positions."""

_MOVING = (
    *("alias", "clone", "expand", "permute", "transpose.int", "t", "view", "_unsafe_view", "unsqueeze", "unfold"),
    *("squeeze", "squeeze.dim", "squeeze.dims", "flip", "roll", "rot90", "repeat", "detach", "_reshape_alias"),
    *("slice.Tensor", "select.int", "split.Tensor", "split_with_sizes", "unbind.int", "unsafe_split.Tensor"),
    *("unsafe_split_with_sizes", "diagonal", "diag_embed", "tril", "triu", "index.Tensor", "index_select", "gather"),
    *("take", "masked_select", "as_strided", "lift_fresh_copy", "lift", "_unsafe_index.Tensor", "trace"),
    *("constant_pad_nd", "cat", "concat", "concatenate", "stack", "where.self", "masked_scatter"),
    *("masked_fill.Scalar", "masked_fill.Tensor"),
    *("fill.Scalar", "fill.Tensor", "index_put", "_unsafe_index_put", "put"),
    *("index_copy", "scatter.src", "scatter.value", "select_scatter", "slice_scatter"),
    *("diagonal_scatter", "as_strided_scatter", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d"),
    *("replication_pad1d", "replication_pad2d", "replication_pad3d", "pixel_shuffle", "pixel_unshuffle", "resize"),
    *("channel_shuffle", "im2col", "col2im", "block_diag"),
)
_ADDING = (
    *("sum", "sum.dim_IntList", "mean", "mean.dim", "cumsum", "nansum", "scatter_add", "index_add"),
    *("neg", "_neg_view"),
)


@complex_rule(*(f"aten::{name}" for name in (*_MOVING, *_ADDING)), takes_overload=True)
def apart(overload: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Apply the operator to the real parts and to the imaginary parts."""
    names = [argument.name for argument in overload._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    results = [overload(**{name: _part(number, name, value) for name, value in given.items()}) for number in (0, 1)]
    if isinstance(results[0], Tensor):
        return joined(*results)
    return [joined(*both) for both in zip(*results, strict=True)]


def _part(number: int, name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_part(number, name, item) for item in value]
    if isinstance(value, torch.dtype):
        return real_type(value)
    is_element = name in _ELEMENTS or isinstance(value, complex)
    return parts(value)[number] if is_element and value is not None else value


@complex_rule("aten::index_fill.int_Tensor", "aten::index_fill.int_Scalar")
def index_fill(self: Tensor, dim: int, index: Tensor, value: Tensor | complex) -> Tensor:
    """Write one number at the indexed positions of an axis."""
    value = value if isinstance(value, Tensor) else torch.full((), value, dtype=self.dtype)
    if self.dim() == 0:
        return value.to(self.dtype).expand(self.shape)
    axis = dim % self.dim()
    shape = [*self.shape[:axis], index.numel(), *self.shape[axis + 1 :]]
    return self.index_copy(axis, index.reshape(-1), value.to(self.dtype).expand(shape))


@complex_rule("aten::scatter_reduce.two")
def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Sums and means at indexed positions; products have no rule."""
    if reduce not in ("sum", "mean"):
        return NotImplemented
    both = zip(parts(self), parts(src), strict=True)
    return joined(
        *(torch.scatter_reduce(base, dim, index, values, reduce, include_self=include_self) for base, values in both)
    )
