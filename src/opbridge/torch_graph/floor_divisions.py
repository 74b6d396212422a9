"""A workaround for quotients of sizes that torch.onnx rounds towards zero, as in ``-(-length // step)``."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

__all__ = ["floor_negative_quotients"]


def floor_negative_quotients(program: torch.export.ExportedProgram) -> None:
    """Write ``a // b`` as ``(a - a % b) // b`` where ``a`` may be negative, so that no rounding is left.

    torch.onnx maps ``//`` of sizes to an integer Div, which truncates, and ``%`` to Mod, which has the sign of ``b`` as
    in Python.

    Args:
        program: The decomposed program, which is changed in place.
    """
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.find_nodes(op="call_function", target=operator.floordiv):
                _floor(module.graph, node)
            module.recompile()


def _floor(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    values = [_value(argument) for argument in node.args]
    if all(not isinstance(value, torch.SymInt | int) or statically_known_true(value >= 0) for value in values):
        return
    numerator, divisor = node.args
    with graph.inserting_before(node):
        rest = graph.call_function(operator.mod, (numerator, divisor))
        multiple = graph.call_function(operator.sub, (numerator, rest))
    rest.meta = {**node.meta, "val": values[0] % values[1]}
    multiple.meta = {**node.meta, "val": values[0] - values[0] % values[1]}
    node.args = (multiple, divisor)


def _value(argument: Any) -> Any:
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument
