"""Refuses a model that catches an error of Python which depends on data: the program takes one path for all inputs.

``1 / n`` of a number from a tensor raises no error during the capture, and the model computes an infinity. In
``try: r = 1 / n except ZeroDivisionError: r = 0`` PyTorch computes something else.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.capture.failures import CaptureFailure
from opbridge.findings import unconverted_control_flow
from opbridge.torch_graph.sources import frames_of_node
from opbridge.torch_graph.statements import errors_caught_at
from opbridge.torch_graph.targets import calls_in

__all__ = ["refuse_caught_errors"]

_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
_DIVISIONS_OF_TENSORS = ("floor_divide", "remainder", "fmod", "div")
_FUNCTIONS = ("acos", "acosh", "asin", "atanh", "log", "log1p", "log2", "log10", "pow", "sqrt")
"""The functions of ``math`` that raise a ValueError for some numbers."""


def refuse_caught_errors(program: torch.export.ExportedProgram) -> None:
    """Raise an error if a program contains an operation whose error in Python the model catches.

    Raises:
        CaptureFailure: The message names the line and the error.
    """
    for node in calls_in(program):
        error = _error_of(node)
        names = [parent.__name__ for parent in error.__mro__] if error is not None else []
        for line in frames_of_node(node) if names else ():
            caught = next((name for name in errors_caught_at(line) if name in names), None)
            if caught is not None:
                reason = f"`except {caught}` catches an error that it raises for some numbers"
                fix = "test the number before, as in `r = 1 / n if n != 0 else 0`."
                raise CaptureFailure(unconverted_control_flow.finding(str(line), reason, fix), details="")


def _error_of(node: torch.fx.Node) -> type[Exception] | None:
    """The error that Python may raise where a node computes a result for any number; None if it raises none."""
    if node.target in _DIVISIONS:
        return None if _is_known(node.args[1], lambda number: number != 0) else ZeroDivisionError
    name = node.target._schema.name.partition("::")[2] if isinstance(node.target, torch._ops.OpOverload) else ""
    if name == "select":
        size = node.args[0].meta["val"].shape[node.args[1]]  # type: ignore[union-attr, index]
        return None if _is_known(node.args[2], lambda index: (-size <= index) & (index < size)) else IndexError
    if name in _DIVISIONS_OF_TENSORS and _holds_a_number(node.args[1]):
        return ZeroDivisionError
    return ValueError if name in _FUNCTIONS and _holds_a_number(node.args[0]) else None


def _is_known(argument: Any, condition: Any) -> bool:
    """Whether a number of Python, or a dynamic one at all its values, satisfies a condition."""
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument
    return not isinstance(value, (torch.SymInt, torch.SymFloat)) or statically_known_true(condition(value))


def _holds_a_number(argument: Any) -> bool:
    """Whether a tensor is a dynamic number of Python, which is computed as a tensor."""
    return (
        isinstance(argument, torch.fx.Node)
        and argument.target is torch.ops.aten.scalar_tensor.default
        and isinstance(argument.args[0], torch.fx.Node)
    )
