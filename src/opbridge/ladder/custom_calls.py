"""Operators kept as one node of a custom domain: their targets in the captured graph until they become ONNX nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import OpSpec
from opbridge.errors import TranslationError
from opbridge.torch_graph.targets import target_key

__all__ = ["CustomCall", "keep_custom_nodes"]


@dataclasses.dataclass(eq=False)
class CustomCall:
    """One distinct use of a custom operator, with its element types, ranks and attributes.

    An instance replaces the operator as the target of an FX node. A call of it calls the operator, and its translation
    emits the custom node.

    Attributes:
        overload: The torch operator.
        spec: The declaration that gives its function body.
        template: The operator's arguments in schema order; a :class:`Slot` represents each tensor and dynamic int.
        examples: The fake value of each slot at the first use.
        attributes: The remaining arguments by name, including defaults, which become the node's attributes.
        outputs: The number of tensors that the operator returns.
        function_overload: The overload name of the ONNX function body for this call; set when the bodies are created.
        any_size: Whether the body is captured for any sizes instead of those in the model.
        nodes: The FX nodes that have this instance as their target.
        sites: The fake values of the slots at each of these nodes.
    """

    overload: torch._ops.OpOverload
    spec: OpSpec
    template: tuple[Any, ...]
    examples: tuple[Any, ...]
    attributes: Mapping[str, Any]
    outputs: int
    function_overload: str = ""
    any_size: bool = True
    nodes: list[torch.fx.Node] = dataclasses.field(default_factory=list)
    sites: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        # FX prints a target by these names.
        self.__name__ = self.overload._schema.name.split("::")[1]
        self.__qualname__ = self.__name__
        self.__module__ = __name__

    @property
    def target(self) -> str:
        """The target key of the torch operator."""
        return str(target_key(self.overload))

    @property
    def domain(self) -> str:
        """The node's domain: the torch operator's namespace."""
        return self.overload.namespace

    @property
    def name(self) -> str:
        """The node's operator type: the torch operator's name."""
        return self.__name__

    def arguments(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The operator's arguments, with ``values`` in the slots."""
        return tuple(_fill(item, values) for item in self.template)

    def __call__(self, *values: Any) -> Any:
        """Call the operator: FX runs graphs, and torch.onnx runs them on fake tensors to infer types."""
        return self.call(self.overload, values)

    def call(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        """Call a function of the operator's signature, with ``values`` in the slots."""
        arguments = list(zip(self.overload._schema.arguments, self.arguments(values), strict=True))
        return function(
            *(value for argument, value in arguments if not argument.kwarg_only),
            **{argument.name: value for argument, value in arguments if argument.kwarg_only},
        )

    def emit(self, *values: Any) -> Any:
        """The translation: one node of the custom domain."""
        return custom_node(
            f"{self.domain}::{self.name}",
            *self.onnx_inputs(values),
            num_outputs=self.outputs,
            overload=self.function_overload,
            **self.attributes,
        )

    def split_by_size(self) -> list[CustomCall]:
        """Split this call into one per distinct set of sizes, and give the nodes the new targets."""
        parts: dict[str, CustomCall] = {}
        for node, site in zip(self.nodes, self.sites, strict=True):
            sizes = repr([tuple(map(str, v.shape)) if isinstance(v, torch.Tensor) else None for v in site])
            part = parts.get(sizes)
            if part is None:
                part = dataclasses.replace(self, examples=site, any_size=False, nodes=[], sites=[])
                parts[sizes] = part
            part.nodes.append(node)
            part.sites.append(site)
            node.target = part
        return list(parts.values())

    def onnx_inputs(self, values: Sequence[Any]) -> list[Any]:
        """The node's inputs: the slots in order, and None for each absent optional tensor."""
        inputs: list[Any] = []
        for argument, item in zip(self.overload._schema.arguments, self.template, strict=True):
            if isinstance(item, Slot):
                inputs.append(values[item.index])
            elif isinstance(item, list) and any(isinstance(part, Slot) for part in item):
                inputs.extend(values[part.index] if isinstance(part, Slot) else None for part in item)
            elif item is None and "Tensor" in str(argument.type):
                inputs.append(None)
        return inputs


@dataclasses.dataclass(frozen=True)
class Slot:
    """A placeholder for the ``index``-th value of a custom call."""

    index: int


def _fill(item: Any, values: Sequence[Any]) -> Any:
    if isinstance(item, Slot):
        return values[item.index]
    return [_fill(part, values) for part in item] if isinstance(item, list) else item


def keep_custom_nodes(program: torch.export.ExportedProgram, specs: Mapping[str, OpSpec]) -> tuple[CustomCall, ...]:
    """Set the target of each node of these operators to a :class:`CustomCall`, with one object per distinct use."""
    calls: dict[Any, CustomCall] = {}
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            spec = specs.get(target_key(node.target)) if node.op == "call_function" else None
            if spec is not None:
                call, values = _call_of(node, spec)
                call = calls.setdefault(_identity(call), call)
                call.nodes.append(node)
                call.sites.append(tuple(value.meta["val"] for value in values))
                node.target = call
                node.args = tuple(values)
                node.kwargs = {}
        module.recompile()
    return tuple(calls.values())


def _call_of(node: torch.fx.Node, spec: OpSpec) -> tuple[CustomCall, list[torch.fx.Node]]:
    schema = node.target._schema  # type: ignore[union-attr]
    values: list[torch.fx.Node] = []

    def slot(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            values.append(value)
            return Slot(len(values) - 1)
        return [slot(part) for part in value] if isinstance(value, (list, tuple)) else value

    template: list[Any] = []
    attributes: dict[str, Any] = {}
    for position, argument in enumerate(schema.arguments):
        given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name, _ABSENT)
        item = slot(argument.default_value if given is _ABSENT else given)
        template.append(item)
        if not _holds_slot(item) and "Tensor" not in str(argument.type):
            attributes[argument.name] = _attribute(item, argument.name, node)
    returned = node.meta["val"]
    outputs = len(returned) if isinstance(returned, (tuple, list)) else 1
    examples = tuple(value.meta["val"] for value in values)
    return CustomCall(node.target, spec, tuple(template), examples, attributes, outputs), values  # type: ignore[arg-type]


_ABSENT = object()


def _holds_slot(item: Any) -> bool:
    return isinstance(item, Slot) or (isinstance(item, list) and any(_holds_slot(part) for part in item))


def _attribute(value: Any, name: str, node: torch.fx.Node) -> Any:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list) and all(isinstance(part, (bool, int, float, str)) for part in value):
        return value
    raise TranslationError(
        f"The argument {name!r} of {target_key(node.target)} is a {type(value).__name__}, which is no ONNX attribute.",
        fix="make it an int, float, bool, str, a list of these, or a tensor.",
    )


def _identity(call: CustomCall) -> tuple[Any, ...]:
    """A key that is equal for uses with the same function body: types, ranks, sizes of 1, and attributes."""
    return (
        call.overload,
        tuple(_kind(value) for value in call.examples),
        repr(call.template),
        call.outputs,
    )


def _kind(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return value.dtype, tuple(size if isinstance(size, int) and size < 2 else None for size in value.shape)
