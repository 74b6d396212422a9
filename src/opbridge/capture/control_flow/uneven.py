"""Tensors that iterations of a loop append to a list, and that differ in size along one dimension.

Each is filled up to a size that it can't exceed, and the rows that it has are marked. ``torch.cat`` of the list is the
marked rows, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from opbridge.torch_graph.subgraphs import traced_nodes
from opbridge.torch_graph.targets import target_key

__all__ = ["filled"]

_LARGEST = 1 << 20
"""A larger bound that torch knows is that of any integer."""

_AT_MOST_ELEMENTS = {
    "aten::_unique2.default",
    "aten::masked_select.default",
    "aten::nonzero.default",
    "aten::nonzero_numpy.default",
    "aten::unique_consecutive.default",
    "aten::where.default",
}
"""Operators whose results have at most as many rows as their first argument has elements."""


def filled(tensors: Sequence[Any], known: Set[Any]) -> tuple[Tensor, Tensor, int] | None:
    """Tensors of different sizes as rows of one tensor.

    Args:
        tensors: What an iteration appends.
        known: The symbols of sizes that are the same in each iteration.

    Returns:
        The rows, which are rows of a tensor or not (bool), and the dimension along which the tensors differ. None if
        they do not differ, differ along several dimensions, or have no largest size.
    """
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        return None
    dims = {
        dim for tensor in tensors for dim, size in enumerate(tensor.shape) if not free_unbacked_symbols(size) <= known
    }
    if len(dims) != 1:
        return None
    (dim,) = dims
    rows, present = [], []
    for tensor in tensors:
        most = _most(tensor.shape[dim], known)
        if most is None:
            return None
        count, front = tensor.shape[dim], tensor.movedim(dim, 0)
        rows.append(torch.cat([front, front.new_zeros(most - count, *front.shape[1:])]))
        present.append(torch.arange(most, device=tensor.device) < count)
    return torch.cat(rows), torch.cat(present), dim


def _most(size: Any, known: Set[Any]) -> Any:
    """A number that a data-dependent size can't exceed; None if there is none."""
    if free_unbacked_symbols(size) <= known:
        return size
    upper = size.node.shape_env.bound_sympy(size.node.expr).upper
    if upper.is_Integer and upper < _LARGEST:
        return int(upper)
    node = _made_by(size)
    if node is None or not node.args:
        return None
    arguments: Any = node.args
    key, first = target_key(node.target), arguments[0]
    if key == "torchvision::nms.default":
        return _most(first.meta["val"].shape[0], known)
    if key == "aten::slice.Tensor":
        return _most(first.meta["val"].shape[arguments[1] if len(arguments) > 1 else 0], known)
    if key == "aten::index.Tensor":
        masks = [one.meta["val"] for one in arguments[1] if one is not None and one.meta["val"].dtype == torch.bool]
        return _most_elements(masks[0], known) if len(masks) == 1 else None
    return _most_elements(first.meta["val"], known) if key in _AT_MOST_ELEMENTS else None


def _made_by(size: torch.SymInt) -> torch.fx.Node | None:
    """The first node in the loop whose result has this size."""

    def has_it(value: Any) -> bool:
        sizes = (one for one in getattr(value, "shape", ()) if isinstance(one, torch.SymInt))
        return any(one.node.expr == size.node.expr for one in sizes)

    results = ((node, pytree.tree_leaves(node.meta.get("val"))) for node in traced_nodes())
    return next((node for node, values in results if any(map(has_it, values))), None)


def _most_elements(tensor: Tensor, known: Set[Any]) -> Any:
    sizes = [_most(size, known) for size in tensor.shape]
    return None if None in sizes else math.prod(sizes)
