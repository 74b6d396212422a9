"""Masks of attention that hide nothing, which only cost time in an engine.

While transformers 5 is captured, it gives attention without a mask one that it computes from positions:
``arange(length) >= 0``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.fx import Node

from opbridge.torch_graph.targets import graph_modules

__all__ = ["leave_out_open_masks"]

_ATEN = torch.ops.aten
_MASK = 3
"""The place of the mask among the arguments of attention."""


def leave_out_open_masks(program: torch.export.ExportedProgram) -> None:
    """Remove each mask of bools from ``scaled_dot_product_attention`` that is true for all sizes and inputs.

    Args:
        program: The captured program, which is changed in place.
    """
    for module in graph_modules(program):
        calls = module.graph.find_nodes(op="call_function", target=_ATEN.scaled_dot_product_attention.default)
        masked = [(node, mask) for node in calls if isinstance(mask := _mask_of(node), Node)]
        bounds = _LowerBounds(module.graph) if masked else None
        opened = [
            node for node, mask in masked if bounds is not None and _dtype(mask) is torch.bool and bounds.of(mask)
        ]
        for node in opened:
            node.args = (*node.args[:_MASK], *([None] * (len(node.args) > _MASK)), *node.args[_MASK + 1 :])
            node.kwargs = {name: value for name, value in node.kwargs.items() if name != "attn_mask"}
        if opened:
            module.graph.eliminate_dead_code()
            module.recompile()


def _mask_of(node: Node) -> Any:
    return node.args[_MASK] if len(node.args) > _MASK else node.kwargs.get("attn_mask")


def _dtype(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


class _LowerBounds:
    """Integers that no element of a tensor is below, for tensors that are computed from constants and sizes."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._found: dict[Node, int | None] = dict.fromkeys(_written(graph))

    def of(self, value: Any) -> int | None:
        """The bound of a node's result or of a number, for bools 0 or 1; None if none is known."""
        if isinstance(value, int):
            return value
        if not isinstance(value, Node):
            return None
        if value not in self._found:
            rule = _RULES.get(value.target) if _dtype(value) in _DTYPES else None
            self._found[value] = rule(self, value) if rule is not None else None
        return self._found[value]


_DTYPES = (torch.bool, torch.int32, torch.int64)
"""Masks and positions have these types; sums of positions are far from their limits."""


def _written(graph: torch.fx.Graph) -> Iterator[Node]:
    """The nodes into whose results an operator writes, directly or through views of them."""
    for node in graph.nodes:
        waiting = list(_arguments(node, written=True))
        while waiting:
            value = waiting.pop()
            yield value
            waiting += _arguments(value, written=False)


def _arguments(node: Node, *, written: bool) -> Iterator[Node]:
    """The arguments that an operator writes into, or those of which its result is a view."""
    schema = getattr(node.target, "_schema", None)
    for argument, value in zip(schema.arguments, node.args, strict=False) if schema is not None else ():
        alias = argument.alias_info
        if isinstance(value, Node) and alias is not None and alias.is_write is written:
            yield value


def _same(bounds: _LowerBounds, node: Node) -> int | None:
    return bounds.of(node.args[0])


def _converted(bounds: _LowerBounds, node: Node) -> int | None:
    bound, (before, after) = bounds.of(node.args[0]), (_dtype(node.args[0]), _dtype(node))  # type: ignore[arg-type]
    if after is torch.bool and bound is not None:
        return int(bound > 0)
    return bound if before is after else None


def _first(bounds: _LowerBounds, node: Node) -> int | None:
    """The start of an ``arange`` that rises."""
    step = node.args[2] if len(node.args) > 2 else 1
    return bounds.of(node.args[0]) if isinstance(step, int) and step > 0 else None


def _sum(bounds: _LowerBounds, node: Node) -> int | None:
    a, b = map(bounds.of, node.args[:2])
    return None if a is None or b is None or node.kwargs or _dtype(node) is torch.bool else a + b


def _is_above(strictly: bool) -> Callable[[_LowerBounds, Node], int]:
    def rule(bounds: _LowerBounds, node: Node) -> int:
        a, b = bounds.of(node.args[0]), node.args[1]
        return int(a is not None and isinstance(b, int) and a >= b + strictly)

    return rule


def _both(bounds: _LowerBounds, node: Node) -> int | None:
    a, b = map(bounds.of, node.args)
    return None if a is None or b is None or _dtype(node) is not torch.bool else min(a, b)


def _constant(bound: int) -> Callable[[_LowerBounds, Node], int]:
    return lambda bounds, node: bound


_RULES: Mapping[Any, Callable[[_LowerBounds, Node], int | None]] = {
    _ATEN.arange.default: _constant(0),
    _ATEN.arange.start: _first,
    _ATEN.arange.start_step: _first,
    _ATEN.full.default: lambda bounds, node: bounds.of(node.args[1]),
    **dict.fromkeys((_ATEN.ones.default, _ATEN.new_ones.default, _ATEN.ones_like.default), _constant(1)),
    **dict.fromkeys((_ATEN.add.Tensor, _ATEN.add.Scalar), _sum),
    **dict.fromkeys((_ATEN.ge.Scalar, _ATEN.ge.Tensor), _is_above(strictly=False)),
    **dict.fromkeys((_ATEN.gt.Scalar, _ATEN.gt.Tensor), _is_above(strictly=True)),
    **dict.fromkeys((_ATEN.__and__.Tensor, _ATEN.bitwise_and.Tensor, _ATEN.logical_and.default), _both),
    **dict.fromkeys((_ATEN.unsqueeze.default, _ATEN.squeeze.dim, _ATEN.expand.default, _ATEN.view.default), _same),
    **dict.fromkeys((_ATEN.reshape.default, _ATEN.slice.Tensor, _ATEN.select.int, _ATEN.transpose.int), _same),
    **dict.fromkeys(
        (_ATEN.contiguous.default, _ATEN.repeat.default, _ATEN.permute.default, _ATEN.clone.default), _same
    ),
    **dict.fromkeys((_ATEN.to.dtype, _ATEN.to.device, _ATEN.to.dtype_layout), _converted),
}
