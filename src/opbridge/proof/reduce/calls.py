"""Extracts calls of a captured program as a separate module, with their input values in the program."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx.node import map_arg

from opbridge.capture.capture import Captured
from opbridge.proof.verify.inputs import InputSpecs

__all__ = ["CallPart", "Calls"]


@dataclasses.dataclass(frozen=True)
class CallPart:
    """Some calls of a program as a module.

    Attributes:
        module: The calls as a module.
        args: The values of the module's arguments in the program.
    """

    module: torch.fx.GraphModule
    args: tuple[torch.Tensor, ...]

    @property
    def calls(self) -> list[torch.fx.Node]:
        """The calls."""
        return [node for node in self.module.graph.nodes if node.op == "call_function"]


class Calls:
    """The calls of a captured program.

    Args:
        captured: The program; the values come from its example inputs.

    Attributes:
        nodes: The calls of the program, in order.
    """

    def __init__(self, captured: Captured) -> None:
        self._module = captured.program.module()
        self.nodes = [node for node in self._module.graph.nodes if node.op == "call_function"]
        self._values = _Recorder(self._module).recorded(InputSpecs(captured).flat)

    def part(self, nodes: Sequence[torch.fx.Node]) -> CallPart | None:
        """The given calls as a module; None if they need a value that is not a tensor, a list of tensors or a graph."""
        graph = torch.fx.Graph()
        args: list[torch.Tensor] = []
        selected = dict.fromkeys(nodes)
        copies: dict[torch.fx.Node, Any] = {}
        for used in dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used not in selected):
            value = self._values.get(used)
            if isinstance(value, torch.Tensor):
                copies[used] = graph.placeholder(_name(used))
                args.append(value.detach().clone())
            elif isinstance(value, bool | int | float):
                copies[used] = value
            else:
                return None
        for node in nodes:
            call_args, call_kwargs = (map_arg(item, copies.__getitem__) for item in (node.args, node.kwargs))
            copies[node] = graph.create_node("call_function", node.target, call_args, call_kwargs, node.name)  # type: ignore[arg-type]
        outputs = [copies[node] for node in nodes if self._leaves(node, selected)]
        if not outputs or not args:
            return None
        graph.output(tuple(outputs))
        return CallPart(torch.fx.GraphModule(torch.nn.Module(), graph), tuple(args))

    def _leaves(self, node: torch.fx.Node, selected: Mapping[torch.fx.Node, None]) -> bool:
        """Whether the value of a call is one or more tensors that other calls read."""
        value = self._values.get(node)
        some = isinstance(value, torch.Tensor) or (
            isinstance(value, tuple | list) and not _only_unpacked(node, selected)
        )
        return some and (not node.users or any(user not in selected for user in node.users))


def _only_unpacked(node: torch.fx.Node, selected: Mapping[torch.fx.Node, None]) -> bool:
    return bool(node.users) and all(user in selected and user.target is operator.getitem for user in node.users)


def _name(node: torch.fx.Node) -> str:
    return node.name.strip("_") or node.name


class _Recorder(torch.fx.Interpreter):
    """Runs a graph and records every value."""

    def recorded(self, flat: Sequence[Any]) -> dict[torch.fx.Node, Any]:
        """The values on these inputs."""
        self._values: dict[torch.fx.Node, Any] = {}
        with torch.no_grad():
            self.run(*flat, enable_io_processing=False)
        return self._values

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node and record its value."""
        self._values[n] = result = super().run_node(n)
        return result
