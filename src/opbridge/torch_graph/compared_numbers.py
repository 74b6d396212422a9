"""The numbers that a graph compares values with: ``77`` in ``(x == 77).all()``."""

from __future__ import annotations

import itertools
import math

import torch

__all__ = ["compared_numbers", "filled"]

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_MOST = 4


def compared_numbers(module: torch.fx.GraphModule) -> tuple[float, ...]:
    """Numbers near those that the graph, and the graphs in it, compare tensors with, for inputs that change results.

    Returns:
        For each of the first four numbers the number itself, a larger one, and a smaller one; 0 and 1, which are among
        any inputs, are left out.
    """
    parts = (part for part in module.modules() if isinstance(part, torch.fx.GraphModule))
    found = dict.fromkeys(number for part in parts for node in part.graph.nodes for number in _numbers_of(node))
    near = ((number, number + _step(number), number - _step(number)) for number in itertools.islice(found, _MOST))
    return tuple(dict.fromkeys(itertools.chain.from_iterable(near)))


def _numbers_of(node: torch.fx.Node) -> list[float]:
    name = getattr(node.target, "_opname", "") if node.op == "call_function" else ""
    if name not in _COMPARISONS:
        return []
    numbers = [one for one in node.args if isinstance(one, (int, float))]
    return [one for one in numbers if math.isfinite(one) and one not in (0, 1)]


def _step(number: float) -> float:
    return 1 if isinstance(number, int) else max(1.0, abs(number) / 2)


def filled(tensor: torch.Tensor, number: float) -> torch.Tensor:
    """A tensor with this number, or the nearest one that its dtype has, in the place of each element."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        limits = torch.iinfo(tensor.dtype)
        number = min(max(int(number), limits.min), limits.max)
    return torch.full_like(tensor, number)
