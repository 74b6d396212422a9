"""Checks that a model in memory is valid ONNX, and that a change to it has kept its inputs.

The check reads names, because a model is written by name: two values of one name in a scope are one value in the file.
It costs microseconds per node, needs no protocol buffer, and finds what ``onnx.checker`` finds except types and shapes.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from opbridge.errors import TranslationError
from opbridge.onnx_model.names import describe_node, describe_operator

__all__ = ["Problem", "check_change", "fixed_bodies", "interface_problems", "problems"]

_OWN = frozenset(schema.domain for schema in onnx.defs.get_all_schemas())
"""The domains whose operators have schemas."""

_Names = collections.ChainMap[str, ir.Value]


@dataclasses.dataclass(frozen=True)
class Problem:
    """One reason why a model is not valid.

    Attributes:
        node: The name of the node or of the value.
        operator: ``"domain::Op"``; empty if the problem is not at a node.
        reason: The rest of a sentence about the node: "reads 'x', which nothing before it produces".
    """

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node!r}{f' ({self.operator})' if self.operator else ''} {self.reason}"


def problems(model: ir.Model) -> tuple[Problem, ...]:
    """Why the model is not valid ONNX: missing and repeated values, wrong order, operators that break their schema."""
    functions = model.functions
    found = list(_Scope(model.opset_imports, functions, None).graph(model.graph, collections.ChainMap()))
    for function in functions.values():
        scope = _Scope(function.opset_imports, functions, frozenset(function.attributes))
        found += scope.graph(function.graph, collections.ChainMap())
    return tuple(found)


def interface_problems(before: ir.Model, after: ir.Model) -> tuple[Problem, ...]:
    """How a change has broken a model's inputs and outputs: names, element types, ranks and dynamic dimensions.

    Args:
        before: The model before the change.
        after: The model after it. Function bodies are compared with their calls.
    """
    found: list[Problem] = []
    for kind, mine, theirs in (
        ("inputs", before.graph.inputs, after.graph.inputs),
        ("outputs", before.graph.outputs, after.graph.outputs),
    ):
        names = [str(value.name) for value in mine]
        if names != [str(value.name) for value in theirs]:
            now = ", ".join(str(value.name) for value in theirs)
            found.append(Problem("graph", "", f"had the {kind} {', '.join(names)} and now has {now}"))
            continue
        for value, changed in zip(mine, theirs, strict=True):
            found += _changed_value(value, changed, fixed=kind == "inputs")
    own = {(item.node, item.operator) for item in fixed_bodies(before)}
    return (*found, *(item for item in fixed_bodies(after) if (item.node, item.operator) not in own))


def _changed_value(before: ir.Value, after: ir.Value, *, fixed: bool) -> Iterator[Problem]:
    name = str(before.name)
    if before.dtype is not None and after.dtype is not None and before.dtype != after.dtype:
        yield Problem(name, "", f"was {before.dtype.name} and is now {after.dtype.name}")
    if before.shape is None or after.shape is None:
        return
    if len(before.shape) != len(after.shape):
        yield Problem(name, "", f"had {len(before.shape)} dimensions and now has {len(after.shape)}")
    elif fixed:
        for axis, (size, now) in enumerate(zip(before.shape, after.shape, strict=True)):
            if not isinstance(size, int) and isinstance(now, int):
                yield Problem(name, "", f"has the dynamic dimension {size.value!r} at axis {axis}, which is now {now}")


def fixed_bodies(model: ir.Model) -> Iterator[Problem]:
    """The calls that pass a dynamic size to a body that is declared for one size."""
    for node in model.graph.all_nodes() if model.functions else ():
        function = model.functions.get(node.op_identifier())
        for actual, formal in zip(node.inputs, function.inputs if function is not None else (), strict=False):
            if actual is None or actual.shape is None or formal.shape is None or len(actual.shape) != len(formal.shape):
                continue
            for axis, (size, fixed) in enumerate(zip(actual.shape, formal.shape, strict=True)):
                if isinstance(fixed, int) and not isinstance(size, int):
                    passed = f"passes {actual.name!r}, whose axis {axis} is dynamic, to a body for the size {fixed}"
                    yield Problem(describe_node(node), describe_operator(node.domain, node.op_type), passed)


class _Scope:
    """The main graph or one function, with its own opset imports."""

    def __init__(
        self, opset_imports: Mapping[str, int], functions: Mapping[Any, ir.Function], parameters: frozenset[str] | None
    ) -> None:
        self._imports = {"" if domain == "ai.onnx" else domain: number for domain, number in opset_imports.items()}
        self._functions = functions
        self._parameters = parameters

    def graph(self, graph: ir.Graph, outer: _Names) -> Iterator[Problem]:
        """The problems of a graph and of its subgraphs."""
        names: _Names = outer.new_child()
        own = names.maps[0]
        for value in (*graph.inputs, *graph.initializers.values()):
            if own.setdefault(str(value.name), value) is not value:
                yield Problem(str(value.name), "", "is the name of two inputs or initializers")
        for node in graph:
            place = (describe_node(node), describe_operator(node.domain, node.op_type))
            for value in node.inputs:
                if value is not None:
                    for reason in _unknown(value, names):
                        yield Problem(*place, f"reads {value.name!r}, {reason}")
            for attribute in node.attributes.values():
                for inner in _subgraphs(attribute):
                    yield from self.graph(inner, names)
            for reason in self._breaches(node):
                yield Problem(*place, reason)
            for value in node.outputs:
                if value.name and own.setdefault(value.name, value) is not value:
                    yield Problem(*place, f"produces {value.name!r}, which something before it produces too")
        for value in graph.outputs:
            for reason in _unknown(value, names):
                yield Problem(str(value.name), "", f"is an output, {reason}")

    def _breaches(self, node: ir.Node) -> Iterator[str]:
        """How a node breaks the schema of its operator."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        for attribute in node.attributes.values():
            if attribute.is_ref() and attribute.ref_attr_name not in (self._parameters or ()):
                yield f"refers to the attribute {attribute.ref_attr_name!r}, which no function around it has"
        function = self._functions.get(node.op_identifier())
        if function is not None:
            if len(node.inputs) > len(function.inputs) or len(node.outputs) > len(function.outputs):
                yield "has more inputs or outputs than its function"
            return
        version = self._imports.get(domain)
        if version is None:
            yield f"is in the domain {domain or 'ai.onnx'!r}, for which no opset is imported"
        elif domain in _OWN:
            schema = _schema(node.op_type, version, domain)
            if schema is not None:
                yield from schema.breaches(node)
            elif not domain:
                yield f"is no operator of opset {version}"


def _unknown(value: ir.Value, names: _Names) -> Iterator[str]:
    known = names.get(str(value.name))
    if known is None:
        yield "which nothing before it produces"
    elif known is not value:
        yield "which is the name of another value in the file"


def _subgraphs(attribute: ir.Attr) -> Sequence[ir.Graph]:
    if attribute.is_ref():
        return ()
    if attribute.type is ir.AttributeType.GRAPH:
        return (attribute.as_graph(),)
    return attribute.as_graphs() if attribute.type is ir.AttributeType.GRAPHS else ()


@dataclasses.dataclass(frozen=True)
class _Schema:
    """What a node of an operator must have. Reading it from onnx's own object takes longer than the check."""

    version: int
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    required_inputs: Collection[int]
    attributes: Mapping[str, int]
    required: frozenset[str]
    deprecated: bool

    def breaches(self, node: ir.Node) -> Iterator[str]:
        if self.deprecated:
            yield f"is not an operator of this opset: version {self.version} removed it"
            return
        given = len(node.inputs)
        while given and node.inputs[given - 1] is None:
            given -= 1
        if not self.inputs[0] <= given <= self.inputs[1]:
            yield f"has {given} inputs and needs {_between(self.inputs)}"
        for position in self.required_inputs:
            if position < given and node.inputs[position] is None:
                yield f"lacks its input {position}"
        if not self.outputs[0] <= len(node.outputs) <= self.outputs[1]:
            yield f"has {len(node.outputs)} outputs and makes {_between(self.outputs)}"
        for name, attribute in node.attributes.items():
            if name not in self.attributes:
                yield f"has no attribute {name!r} at version {self.version}"
            elif int(attribute.type) != self.attributes[name]:
                yield f"has the attribute {name!r} as {attribute.type.name}"
        for name in self.required - set(node.attributes):
            yield f"lacks the attribute {name!r}"


@functools.cache
def _schema(operator: str, version: int, domain: str) -> _Schema | None:
    try:
        schema = onnx.defs.get_schema(operator, version, domain)
    except onnx.defs.SchemaError:
        return None
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    return _Schema(
        version=schema.since_version,
        inputs=(schema.min_input, schema.max_input),
        outputs=(schema.min_output, schema.max_output),
        required_inputs=[i for i, parameter in enumerate(schema.inputs) if parameter.option == single],
        attributes={name: int(attribute.type.value) for name, attribute in schema.attributes.items()},
        required=frozenset(name for name, attribute in schema.attributes.items() if attribute.required),
        deprecated=schema.deprecated,
    )


def _between(limits: tuple[int, int]) -> str:
    return str(limits[0]) if limits[0] == limits[1] else f"{limits[0]} or more (at most {limits[1]})"


def check_change(made_by: str, after: ir.Model, before: ir.Model | None = None) -> None:
    """Check that a change has left a model valid; what was wrong before is the model's own.

    Args:
        made_by: What changed the model: the name of a pass.
        after: The model after the change.
        before: The model before it; None if the change made the model.

    Raises:
        TranslationError: The change made the model invalid; the message names it and the node.
    """
    found = problems(after)
    if found and before is not None:
        # A conversion to another opset may describe the same problem in other words.
        own = {(item.node, item.operator) for item in problems(before)}
        found = tuple(item for item in found if (item.node, item.operator) not in own)
    if before is not None:
        found += interface_problems(before, after)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise TranslationError(
            f"{made_by} wrote an invalid model: {found[0]}{more}",
            fix="this is a bug in opbridge; please report it with the log.",
            details="\n".join(map(str, found)),
        )
