"""A program that contains each distinct operator of a model once, which ``diagnose`` uses in place of the model.

A ResNet-50 has 175 operator calls, but only a dozen differ in overload, element types, ranks or constants. Only these
have to be checked for mappings and kernels.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import torch
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)

from opbridge.torch_graph.checks import CHECKS
from opbridge.torch_graph.targets import functional_target, target_key

__all__ = ["distinct_operators"]


def distinct_operators(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """A program that calls each distinct operator of ``program`` once, each with separate inputs.

    Two calls are the same if their overloads, element types, ranks and non-tensor arguments are equal. Control flow
    keeps its branches. Every node keeps its source line.
    """
    builder = _Builder(program)
    for node in program.graph.nodes:
        if node.op == "call_function":
            builder.add(node)
    return builder.finish()


class _Builder:
    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self._program = program
        self._graph = torch.fx.Graph()
        self._root = torch.nn.Module()
        self._seen: set[Any] = set()
        self._inputs: dict[torch.fx.Node, torch.fx.Node] = {}
        self._outputs: list[torch.fx.Node] = []
        self._attributes: dict[str, torch.fx.Node] = {}

    def add(self, node: torch.fx.Node) -> None:
        key = _signature(node)
        if key is None or key in self._seen or not isinstance(node.target, torch._ops.OperatorBase):
            return
        self._seen.add(key)
        copied = self._graph.node_copy(node, self._input)
        copied.target = functional_target(node.target)
        if _is_mutable(copied.target):
            copied.args = tuple(map(self._cloned, copied.args))
        value = node.meta.get("val")
        if isinstance(value, (tuple, list)):
            self._outputs.extend(
                self._item(copied, i) for i, part in enumerate(value) if isinstance(part, torch.Tensor)
            )
        elif isinstance(value, torch.Tensor):
            self._outputs.append(copied)

    def _cloned(self, value: Any) -> Any:
        """A copy for an operator that writes into its arguments, so that the inputs of the program do not change."""
        if not isinstance(value, torch.fx.Node) or not isinstance(value.meta["val"], torch.Tensor):
            return value
        with self._graph.inserting_after(value):
            clone = self._graph.call_function(torch.ops.aten.clone.default, (value,))
        clone.meta["val"] = value.meta["val"].clone()
        return clone

    def _item(self, node: torch.fx.Node, index: int) -> torch.fx.Node:
        item = self._graph.call_function(operator.getitem, (node, index))
        item.meta["val"] = node.meta["val"][index]
        return item

    def _input(self, node: torch.fx.Node) -> torch.fx.Node:
        if node.op == "get_attr":
            return self._attribute(node)
        if node not in self._inputs:
            with self._graph.inserting_before(next(iter(self._graph.nodes))) if self._graph.nodes else _nothing():
                placeholder = self._graph.placeholder(f"input_{len(self._inputs)}")
            placeholder.meta["val"] = node.meta.get("val")
            self._inputs[node] = placeholder
        return self._inputs[node]

    def _attribute(self, node: torch.fx.Node) -> torch.fx.Node:
        name = str(node.target)
        if name not in self._attributes:
            self._root.add_module(name, getattr(self._program.graph_module, name))
            self._attributes[name] = self._graph.get_attr(name)
        return self._attributes[name]

    def finish(self) -> torch.export.ExportedProgram:
        self._graph.output(tuple(self._outputs))
        placeholders = [node for node in self._graph.nodes if node.op == "placeholder"]
        signature = ExportGraphSignature(
            [InputSpec(InputKind.USER_INPUT, _argument(node), None) for node in placeholders],
            [OutputSpec(OutputKind.USER_OUTPUT, _argument(node), None) for node in self._outputs],
        )
        tree = torch.utils._pytree.tree_structure
        return torch.export.ExportedProgram(
            root=self._root,
            graph=self._graph,
            graph_signature=signature,
            state_dict={},
            range_constraints=self._program.range_constraints,
            verifiers=list(self._program.verifiers),
            module_call_graph=[
                ModuleCallEntry(
                    "",
                    ModuleCallSignature(
                        inputs=[],
                        outputs=[],
                        in_spec=tree((tuple(range(len(placeholders))), {})),
                        out_spec=tree(tuple(range(len(self._outputs)))),
                    ),
                )
            ],
        )


def _is_mutable(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _nothing() -> Any:
    return contextlib.nullcontext()


def _argument(node: torch.fx.Node) -> Any:
    return (TensorArgument if isinstance(node.meta["val"], torch.Tensor) else SymIntArgument)(name=node.name)


def _signature(node: torch.fx.Node) -> Any:
    """A key that is equal for equivalent calls; None for an assertion, which engines do not run."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return node
    if target_key(node.target) in CHECKS:
        return None

    def kind(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            fake = value.meta.get("val")
            return (fake.dtype, fake.dim()) if isinstance(fake, torch.Tensor) else type(fake).__name__
        if isinstance(value, (list, tuple)):
            return tuple(kind(part) for part in value)
        return type(value).__name__, repr(value)

    return (
        functional_target(node.target),
        tuple(kind(value) for value in node.args),
        tuple((key, kind(value)) for key, value in node.kwargs.items()),
    )
