"""Sizes that Python computes from other sizes in floating point, as in ``int(height / 1.2)``, computed in float64.

torch.onnx computes them in float32, where ``18 / 1.2`` is less than 15: the size would be one too small. It does so for
a factor ``height / width`` of a float64 tensor too.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

__all__ = ["compute_sizes_in_float64"]

_aten = torch.ops.aten

_ROUNDINGS: dict[Any, Any] = {
    math.trunc: None,
    math.floor: _aten.floor.default,
    math.ceil: _aten.ceil.default,
    builtins.round: _aten.round.default,
}
_ARITHMETIC: dict[Any, Any] = {
    operator.add: _aten.add.Tensor,
    operator.sub: _aten.sub.Tensor,
    operator.mul: _aten.mul.Tensor,
    operator.truediv: _aten.div.Tensor,
    operator.pow: _aten.pow.Tensor_Tensor,
    operator.neg: _aten.neg.default,
    torch.sym_max: _aten.maximum.default,
    torch.sym_min: _aten.minimum.default,
}
_TAKE_NUMBERS = {
    _aten.scalar_tensor.default,
    *(_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor),
}
"""Functions that take a number or a tensor of rank 0 in the same place, and one that makes such a tensor."""
_FLOAT64 = torch.float64


def compute_sizes_in_float64(program: torch.export.ExportedProgram) -> None:
    """Replace each number that is rounded to a size, or that float64 tensors are computed with, by a float64 tensor.

    It is as precise as a number of Python.

    A quotient of two integers that is rounded up or down becomes a quotient of integers. A number that is computed by
    another function than those of ``_ARITHMETIC``, and not read from a tensor, keeps its type.

    Args:
        program: The decomposed program, which is changed in place.
    """
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for target in _ROUNDINGS:
            for node in module.graph.find_nodes(op="call_function", target=target):
                _Conversion(node).apply()
        for node in list(module.graph.nodes):
            for number in _float64_numbers(node):
                _Conversion(node).widen(number)
        module.graph.eliminate_dead_code()
        module.recompile()


def _float64_numbers(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The numbers, computed from sizes, that a node computes a float64 tensor with."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype != _FLOAT64 or node.target not in _TAKE_NUMBERS:
        return []
    return [one for one in node.all_input_nodes if isinstance(one.meta.get("val"), torch.SymFloat)]


class _Conversion:
    """A node that rounds a number to a size, or computes a float64 tensor with numbers."""

    def __init__(self, node: torch.fx.Node) -> None:
        self.node = node
        self.graph = node.graph
        self.mode = next((mode for one in node.graph.nodes if (mode := _mode(one)) is not None), None)

    def apply(self) -> None:
        node = self.node
        number, *digits = node.args
        if _is_quotient(number) and (
            node.target in (math.floor, math.ceil) or (node.target is math.trunc and _is_not_negative(number))
        ):
            self._divide(number)
            return
        if self.mode is None or any(digit is not None for digit in digits) or not self._is_known(number):
            return
        with self.graph.inserting_before(node):
            value = self._wide(number)
            rounding = _ROUNDINGS[node.target]
            value = value if rounding is None else self._call(rounding, value)
            whole = self._call(_aten._to_copy.default, value, dtype=torch.int64)
            size = self.graph.call_function(_aten._local_scalar_dense.default, (whole,))
        size.meta = dict(node.meta)
        node.replace_all_uses_with(size)
        self.graph.erase_node(node)

    def widen(self, number: torch.fx.Node) -> None:
        """Let the node compute with ``number`` as a float64 tensor."""
        if self.mode is None or not self._is_known(number):
            return
        with self.graph.inserting_before(self.node):
            wide = self._wide(number)
        if self.node.target is _aten.scalar_tensor.default:
            # The node stays, because an output may have its name.
            self.node.target, self.node.args, self.node.kwargs = _aten.clone.default, (wide,), {}
        else:
            self.node.replace_input_with(number, wide)

    def _divide(self, quotient: Any) -> None:
        """``a // b``, or ``-(-a // b)``, in place of the rounded quotient."""
        up = self.node.target is math.ceil
        numerator, divisor = map(_whole, quotient.args)
        with self.graph.inserting_before(self.node):
            size = self._on_sizes(operator.neg, numerator) if up else numerator
            size = self._on_sizes(operator.floordiv, size, divisor)
            size = self._on_sizes(operator.neg, size) if up else size
        size.meta = dict(self.node.meta)
        self.node.replace_all_uses_with(size)
        self.graph.erase_node(self.node)

    def _on_sizes(self, function: Callable[..., Any], *args: Any) -> torch.fx.Node:
        made = self.graph.call_function(function, args)
        made.meta = {**self.node.meta, "val": function(*map(_number, args))}
        return made

    def _is_known(self, number: Any) -> bool:
        """Whether a number is computed from sizes by functions of the table, and not a size itself."""
        if not isinstance(number, torch.fx.Node) or isinstance(number.meta.get("val"), torch.SymInt):
            return isinstance(number, int | float | torch.fx.Node)
        if number.target is torch.sym_float:
            return self._is_known(number.args[0])
        if number.target is _aten._local_scalar_dense.default:
            return True
        return number.target in _ARITHMETIC and not number.kwargs and all(map(self._is_known, number.args))

    def _wide(self, number: Any) -> torch.fx.Node:
        if not isinstance(number, torch.fx.Node) or isinstance(number.meta.get("val"), torch.SymInt):
            return self._call(_aten.scalar_tensor.default, number, dtype=_FLOAT64)
        if number.target is torch.sym_float:
            return self._wide(number.args[0])
        if number.target is _aten._local_scalar_dense.default:
            return self._call(_aten._to_copy.default, number.args[0], dtype=_FLOAT64)
        return self._call(_ARITHMETIC[number.target], *map(self._wide, number.args))

    def _call(self, function: Callable[..., Any], *args: Any, **options: Any) -> torch.fx.Node:
        made = self.graph.call_function(function, args, options)
        assert self.mode is not None
        with self.mode:
            value = torch.empty((), dtype=options.get("dtype", _FLOAT64))
        made.meta = {**self.node.meta, "val": value}
        return made


def _is_quotient(number: Any) -> bool:
    """Whether a number is a quotient of two integers."""
    return (
        isinstance(number, torch.fx.Node)
        and number.target is operator.truediv
        and all(_whole(value) is not None for value in number.args)
    )


def _whole(value: Any) -> Any:
    """The integer that a number is, also as a floating-point number: ``n`` for ``float(n)``; None for any other."""
    if isinstance(value, torch.fx.Node) and value.target is torch.sym_float:
        return value.args[0]
    number = _number(value)
    if isinstance(number, float) and number.is_integer():
        return int(number)
    return value if isinstance(number, int | torch.SymInt) else None


def _is_not_negative(quotient: Any) -> bool:
    """Whether a quotient is known not to be negative, so that it is truncated by rounding down."""
    numerator, divisor = (_number(_whole(value)) for value in quotient.args)
    return bool(statically_known_true(numerator >= 0) and statically_known_true(divisor >= 0))


def _number(value: Any) -> Any:
    return value.meta.get("val") if isinstance(value, torch.fx.Node) else value


def _mode(node: torch.fx.Node) -> Any:
    return getattr(node.meta.get("val"), "fake_mode", None)
