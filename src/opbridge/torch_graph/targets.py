"""Torch operators as targets of graph nodes: their names, functional forms and calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

__all__ = [
    "calls_in",
    "display_name",
    "functional_target",
    "graph_modules",
    "in_any_layout",
    "overload_of",
    "target_key",
    "values_outside",
]


def target_key(target: Any) -> Any:
    """The key of an FX node's target: ``"aten::add.Tensor"`` for an overload, otherwise the callable itself."""
    if isinstance(target, torch._ops.OpOverload):
        name = target.name()
        return name if "." in name.split("::")[-1] else f"{name}.{target._overloadname}"
    return target


def functional_target(target: Any) -> Any:
    """The functional form of an in-place operator (``aten::relu`` for ``aten::relu_``); any other target unchanged."""
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return target
    name = target._schema.name.split("::")[1]
    packet = getattr(getattr(torch.ops, target.namespace), name.removesuffix("_"), None) if name[-1] == "_" else None
    return getattr(packet, target._overloadname, target) if packet is not None else target


def in_any_layout(target: Any) -> Any:
    """``reshape`` for ``view``, which takes no tensor in another layout than in the capture; other targets as they are.

    A real recurrent layer, for example, returns another layout than one without data; where a view is possible, the two
    are the same.
    """
    return torch.ops.aten.reshape.default if target is torch.ops.aten.view.default else target


def display_name(key: Any) -> str:
    """A target key as shown to users: "aten::cummax", "aten::add.Tensor", "torch::cond"."""
    return key.removesuffix(".default") if isinstance(key, str) else f"torch::{getattr(key, '__name__', key)}"


def graph_modules(program: torch.export.ExportedProgram) -> Iterator[torch.fx.GraphModule]:
    """The graphs of the program and of its branches and loop bodies."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield module


def calls_in(program: torch.export.ExportedProgram) -> Iterator[torch.fx.Node]:
    """Every ``call_function`` node of a program, including those of branches and loop bodies."""
    for module in graph_modules(program):
        for node in module.graph.nodes:
            if node.op == "call_function":
                yield node


def values_outside(program: torch.export.ExportedProgram) -> dict[torch.fx.Node, torch.fx.Node]:
    """What each input of a branch or loop body is outside of it; for a loop, before the first iteration."""
    found = {}
    for module in graph_modules(program):
        for node in module.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.HigherOrderOperator):
                graphs = [arg for arg in node.args if isinstance(arg, torch.fx.Node) and arg.op == "get_attr"]
                values = [value for arg in node.args if isinstance(arg, list | tuple) for value in arg]
                for graph in graphs:
                    inner = getattr(module, str(graph.target), None)
                    if not isinstance(inner, torch.fx.GraphModule):
                        continue
                    inputs = inner.graph.find_nodes(op="placeholder")
                    if len(inputs) == len(values):
                        pairs = zip(inputs, values, strict=True)
                        found.update({own: value for own, value in pairs if isinstance(value, torch.fx.Node)})
    return found


def overload_of(key: str) -> torch._ops.OpOverload:
    """The operator of a target key such as ``"aten::add.Tensor"``."""
    name, _, overload = key.partition(".")
    namespace, _, operator_name = name.partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), operator_name), overload)
