"""Bit operations on sizes, as in ``size >> 1``: torch.onnx has mappings for those of tensors alone."""

from __future__ import annotations

import operator
from typing import Any

import torch

__all__ = ["without_bit_operations"]


def without_bit_operations(program: torch.export.ExportedProgram) -> None:
    """Replace shifts of sizes by constants, ``1 << size``, and masks of their last bits, by arithmetic.

    Args:
        program: The captured program, which is changed in place.
    """
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for target in (operator.rshift, operator.lshift, operator.and_):
            for node in module.graph.find_nodes(op="call_function", target=target):
                arithmetic = _arithmetic(target, *node.args)
                if arithmetic is not None:
                    node.target, node.args = arithmetic
        module.recompile()


def _arithmetic(target: Any, size: Any, number: Any) -> tuple[Any, tuple[Any, Any]] | None:
    """The function and its arguments; None if there are none."""
    if not isinstance(size, torch.fx.Node):
        size, number = number, size
        if target is operator.lshift and number == 1:
            return operator.pow, (2, size)
        if target is not operator.and_:
            return None
    if not isinstance(size.meta.get("val"), torch.SymInt) or not isinstance(number, int) or number < 0:
        return None
    if target is operator.rshift:
        return operator.floordiv, (size, 1 << number)
    if target is operator.lshift:
        return operator.mul, (size, 1 << number)
    return (operator.mod, (size, number + 1)) if number & (number + 1) == 0 else None
