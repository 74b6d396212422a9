"""``squeeze`` of a dynamic size, which torch.export captures as if the size were not 1.

The captured program still calls ``squeeze``. At the size 1 its result would have another rank than the program states,
and than the ONNX model has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch

from opbridge.torch_graph.size_guards import SizeGuard, dimensions_of
from opbridge.torch_graph.sources import source_of_node

__all__ = ["keep_dynamic_sizes"]

_SQUEEZES = (torch.ops.aten.squeeze.default, torch.ops.aten.squeeze.dim, torch.ops.aten.squeeze.dims)


def keep_dynamic_sizes(program: torch.export.ExportedProgram) -> list[SizeGuard]:
    """Make each ``squeeze`` of a program keep the dynamic sizes that the rank of its result contains.

    A result that is only an output of the model stays as it is, and has PyTorch's rank at the size 1 too.

    Args:
        program: The program, which is changed in place.

    Returns:
        The conditions that these sizes are not 1.
    """
    guards = []
    for module in program.graph_module.modules():
        for node in list(module.graph.nodes) if isinstance(module, torch.fx.GraphModule) else ():
            is_output = module is program.graph_module and all(user.op == "output" for user in node.users)
            if not is_output and node.target in _SQUEEZES and (value := _value(node.args[0])) is not None:
                sizes: dict[int, Any] = {axis: value.shape[axis] for axis in _axes(node, value.dim())}
                kept = [size for size in sizes.values() if isinstance(size, torch.SymInt)]
                ones = [axis for axis, size in sizes.items() if isinstance(size, int) and size == 1]
                if kept and node.meta["val"].dim() == value.dim() - len(ones):
                    node.target, node.args = torch.ops.aten.squeeze.dims, (node.args[0], ones)
                    guards += [_guard(size, node) for size in kept]
    return guards


def _value(argument: Any) -> torch.Tensor | None:
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _axes(node: torch.fx.Node, rank: int) -> Iterable[int]:
    """The axes that a node squeezes if their size is 1."""
    given: Any = node.args[1] if len(node.args) > 1 else range(rank)
    return {axis % max(rank, 1) for axis in ([given] if isinstance(given, int) else given)}


def _guard(size: torch.SymInt, node: torch.fx.Node) -> SizeGuard:
    condition = sympy.Ne(size.node.expr, 1)
    symbols = {symbol: dimensions_of(size.node.shape_env, symbol) for symbol in condition.free_symbols}
    line = source_of_node(node)
    return SizeGuard(condition, symbols, () if line is None else (line,))
