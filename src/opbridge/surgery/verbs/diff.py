"""Compares two models by what they compute, not by the names of their nodes."""

from __future__ import annotations

import collections
import dataclasses
import difflib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from opbridge.records import Record
from opbridge.surgery.dimensions import sizes_of
from opbridge.surgery.edited import describe, model_of

__all__ = ["Difference", "ModelDifference", "diff"]


@dataclasses.dataclass(frozen=True)
class Difference(Record):
    """One difference.

    Attributes:
        kind: "opset", "input", "output", "weight", "node", "attribute", "wiring", "shape" or "function".
        name: The name of the differing item in the first model, or in the second one if only that one has it.
        detail: A description of the difference.
    """

    kind: str
    name: str
    detail: str


@dataclasses.dataclass(frozen=True)
class ModelDifference(Record):
    """All differences between two models."""

    differences: tuple[Difference, ...]

    json_keys = ("same", "differences")

    @property
    def same(self) -> bool:
        """Whether there are no differences."""
        return not self.differences


def diff(first: Any, second: Any) -> ModelDifference:
    """Compare two models: opsets, inputs, outputs, nodes, attributes, wiring, weights by content, shapes, functions.

    Names of nodes and of inner values are ignored, and so are the order of nodes and whether a constant is a weight or
    a node.

    Args:
        first: The first model, as a path, an ``ir.Model`` or a ``ModelProto``.
        second: The second model, in the same forms.
    """
    one, two = model_of(first), model_of(second)
    found = [*_opsets(one, two)]
    contents = _Contents(one, two)
    found += _graphs(one.graph, two.graph, contents, "")
    for key in sorted({*one.functions, *two.functions}):
        name = "::".join(filter(None, key))
        mine, theirs = one.functions.get(key), two.functions.get(key)
        if mine is None or theirs is None:
            found.append(Difference("function", name, f"only in the {'second' if mine is None else 'first'}"))
        else:
            found += _graphs(mine.graph, theirs.graph, contents, f"{name}: ")
    return ModelDifference(tuple(found))


def _opsets(one: ir.Model, two: ir.Model) -> Iterator[Difference]:
    for domain in sorted({*one.opset_imports, *two.opset_imports}):
        mine, theirs = one.opset_imports.get(domain), two.opset_imports.get(domain)
        if mine != theirs:
            yield Difference("opset", domain or "ai.onnx", f"{mine or 'none'} → {theirs or 'none'}")


class _Contents:
    """Labels of weights: the same label for the same type, shape and bytes."""

    def __init__(self, one: ir.Model, two: ir.Model) -> None:
        self._labels: dict[int, str] = {}
        self._kept: list[Any] = []
        others = two.graph.initializers
        for name, value in one.graph.initializers.items():
            other = others.get(name)
            tensor, equal = value.const_value, None if other is None else other.const_value
            # Comparing is many times faster than hashing, and most weights have the same name in both models.
            if tensor is not None and equal is not None and tensor.nbytes > _SMALL and _identical(tensor, equal):
                self._labels[id(tensor)] = self._labels[id(equal)] = f"equal {name}"
                self._kept += [tensor, equal]

    def label(self, tensor: Any) -> str:
        """The label of a weight."""
        if id(tensor) not in self._labels:
            self._labels[id(tensor)] = f"{_kind(tensor)} {_digest(tensor)}"
            self._kept.append(tensor)
        return self._labels[id(tensor)]


_SMALL, _AT_ONCE = 4096, 1 << 24


def _kind(tensor: Any) -> str:
    return f"{tensor.dtype.name.lower()}{[int(size) for size in tensor.shape]}"


def _identical(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if _kind(one) != _kind(other) or one.dtype is ir.DataType.STRING or one.dtype.bitwidth < 8:
        return False
    mine, theirs = (item.numpy().reshape(-1).view("uint8") for item in (one, other))
    for start in range(0, mine.size, _AT_ONCE):
        if not bool((mine[start : start + _AT_ONCE] == theirs[start : start + _AT_ONCE]).all()):
            return False
        for tensor in (one, other):
            _release(tensor)
    return True


def _release(tensor: Any) -> None:
    """Release the memory of a weight that is mapped from a file."""
    release = getattr(tensor, "release", None)
    if release is not None:
        release()


def _digest(tensor: Any) -> str:
    if tensor.dtype is ir.DataType.STRING:
        return hashlib.sha256(repr(tensor.numpy().tolist()).encode()).hexdigest()
    if tensor.dtype.bitwidth < 8 or not tensor.numpy().flags.c_contiguous:
        return hashlib.sha256(tensor.tobytes()).hexdigest()
    data = tensor.numpy().reshape(-1).view("uint8")
    digest = hashlib.sha256()
    for start in range(0, data.size, _AT_ONCE):
        digest.update(data[start : start + _AT_ONCE].data)
        _release(tensor)
    return digest.hexdigest()


class _Side:
    """One of the two graphs, with a signature of each value and node, computed from the inputs down."""

    def __init__(self, graph: ir.Graph, contents: _Contents) -> None:
        self.graph = graph
        self.nodes = [node for node in graph if not _is_constant(node)]
        self._contents = contents
        self._inputs = {value: position for position, value in enumerate(graph.inputs)}
        self._known: dict[ir.Value, str] = {}
        self.signatures = {node: self._signature(node) for node in self.nodes}

    def constant(self, value: ir.Value) -> Any:
        """The tensor of a constant value; None if the value is not constant."""
        if value.const_value is not None and value not in self._inputs:
            return value.const_value
        node = value.producer()
        if node is not None and _is_constant(node):
            return node.attributes["value"].as_tensor()
        return None

    def of_value(self, value: ir.Value | None) -> str:
        """The signature of a value."""
        if value is None:
            return "absent"
        if value not in self._known:
            tensor = self.constant(value)
            if value in self._inputs:
                self._known[value] = f"input {self._inputs[value]}"
            elif tensor is not None:
                self._known[value] = self._contents.label(tensor)
            else:
                # This value belongs to the graph that encloses the subgraph.
                self._known[value] = f"outer {value.name}"
        return self._known[value]

    def _signature(self, node: ir.Node) -> str:
        text = "\n".join([self.kind(node), *map(self.of_value, node.inputs)])
        signature = hashlib.sha256(text.encode()).hexdigest()
        for position, value in enumerate(node.outputs):
            self._known[value] = f"{signature}:{position}"
        return signature

    def kind(self, node: ir.Node) -> str:
        """A node's operator and attributes."""
        attributes = [f"{name}={text}" for name, text in sorted(self.attributes(node).items())]
        return " ".join([_operator(node), *attributes])

    def attributes(self, node: ir.Node) -> dict[str, str]:
        """A node's attributes as text; a graph attribute is described by what it computes."""
        return {name: self._text(attribute) for name, attribute in node.attributes.items()}

    def _text(self, attribute: ir.Attr) -> str:
        if attribute.is_ref():
            return f"@{attribute.ref_attr_name}"
        if attribute.type is ir.AttributeType.GRAPH:
            inner = _Side(attribute.as_graph(), self._contents)
            return " ".join(["graph", *map(inner.of_value, inner.graph.outputs)])
        if attribute.type is ir.AttributeType.GRAPHS:
            sides = [_Side(graph, self._contents) for graph in attribute.as_graphs()]
            return " ".join(["graphs", *(side.of_value(value) for side in sides for value in side.graph.outputs)])
        if attribute.type is ir.AttributeType.TENSOR:
            return self._contents.label(attribute.value)
        if attribute.type is ir.AttributeType.TENSORS:
            return str([self._contents.label(tensor) for tensor in attribute.value])
        return str(list(attribute.value) if isinstance(attribute.value, tuple) else attribute.value)


def _is_constant(node: ir.Node) -> bool:
    return not node.domain and node.op_type == "Constant" and "value" in node.attributes


def _operator(node: ir.Node) -> str:
    return "::".join(filter(None, (node.domain, node.op_type, node.overload)))


def _graphs(first: ir.Graph, second: ir.Graph, contents: _Contents, where: str) -> list[Difference]:
    one, two = _Side(first, contents), _Side(second, contents)
    found = [*_interface("input", first.inputs, second.inputs), *_interface("output", first.outputs, second.outputs)]
    pairs = _paired(one, two)
    partners = {**pairs}
    backwards = {theirs: mine for mine, theirs in pairs.items()}
    for mine in one.nodes:
        if mine in partners:
            found += _of_pair(one, two, mine, partners[mine], partners)
        else:
            found.append(Difference("node", describe(mine), f"{_operator(mine)}, only in the first"))
    for theirs in two.nodes:
        if theirs not in backwards:
            found.append(Difference("node", describe(theirs), f"{_operator(theirs)}, only in the second"))
    for position, (a, b) in enumerate(zip(first.outputs, second.outputs, strict=False)):
        if not _same_source(one, two, a, b, partners):
            found.append(Difference("wiring", str(a.name), f"the output {position} comes from another place"))
    unique = dict.fromkeys(found)
    return [dataclasses.replace(item, name=f"{where}{item.name}") for item in unique]


def _interface(kind: str, one: Sequence[ir.Value], two: Sequence[ir.Value]) -> Iterator[Difference]:
    for position in range(max(len(one), len(two))):
        if position >= len(two):
            yield Difference(kind, str(one[position].name), "only in the first")
        elif position >= len(one):
            yield Difference(kind, str(two[position].name), "only in the second")
        else:
            mine, theirs = one[position], two[position]
            if mine.name != theirs.name:
                yield Difference(kind, str(mine.name), f"the {kind} {position} is called {theirs.name!r}")
            if _type(mine) != _type(theirs):
                yield Difference(kind, str(mine.name), f"{_type(mine)} → {_type(theirs)}")


def _type(value: ir.Value) -> str:
    sizes = sizes_of(value)
    shape = "of unknown rank" if sizes is None else str(["?" if size is None else size for size in sizes])
    return f"{'untyped' if value.dtype is None else value.dtype.name.lower()} {shape}"


def _paired(one: _Side, two: _Side) -> dict[ir.Node, ir.Node]:
    """Match the nodes of the first graph with those of the second."""
    pairs: dict[ir.Node, ir.Node] = {}
    _pair(pairs, one.nodes, two.nodes, lambda side, node: side.signatures[node], one, two)
    _pair(pairs, one.nodes, two.nodes, lambda side, node: (node.name, _operator(node)) if node.name else node, one, two)
    mine = [node for node in one.nodes if node not in pairs]
    taken = set(pairs.values())
    theirs = [node for node in two.nodes if node not in taken]
    # The remaining nodes are matched in order, if their operators are in the same sequence.
    for texts in ([one.kind, two.kind], [_operator, _operator]):
        matcher = difflib.SequenceMatcher(None, [*map(texts[0], mine)], [*map(texts[1], theirs)], autojunk=False)
        for block in matcher.get_matching_blocks():
            pairs.update(zip(mine[block.a : block.a + block.size], theirs[block.b : block.b + block.size], strict=True))
        mine = [node for node in mine if node not in pairs]
        taken = set(pairs.values())
        theirs = [node for node in theirs if node not in taken]
    return pairs


def _pair(
    pairs: dict[ir.Node, ir.Node],
    mine: Iterable[ir.Node],
    theirs: Iterable[ir.Node],
    key: Callable[[_Side, ir.Node], Any],
    one: _Side,
    two: _Side,
) -> None:
    waiting: dict[Any, collections.deque[ir.Node]] = {}
    taken = set(pairs.values())
    for node in theirs:
        if node not in taken:
            waiting.setdefault(key(two, node), collections.deque()).append(node)
    for node in mine:
        if node not in pairs and waiting.get(key(one, node)):
            pairs[node] = waiting[key(one, node)].popleft()


def _of_pair(
    one: _Side, two: _Side, mine: ir.Node, theirs: ir.Node, partners: Mapping[ir.Node, ir.Node]
) -> Iterator[Difference]:
    name = describe(mine)
    if _operator(mine) != _operator(theirs):
        yield Difference("node", name, f"{_operator(mine)} → {_operator(theirs)}")
    before, after = one.attributes(mine), two.attributes(theirs)
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield Difference("attribute", name, f"{key}: {before.get(key, 'none')} → {after.get(key, 'none')}")
    for position in range(max(len(mine.inputs), len(theirs.inputs))):
        a = mine.inputs[position] if position < len(mine.inputs) else None
        b = theirs.inputs[position] if position < len(theirs.inputs) else None
        yield from _of_input(one, two, name, position, a, b, partners)
    for a, b in zip(mine.outputs, theirs.outputs, strict=False):
        if a.shape is not None and b.shape is not None and _type(a) != _type(b) and not a.is_graph_output():
            yield Difference("shape", str(a.name), f"{_type(a)} → {_type(b)}")


def _of_input(
    one: _Side,
    two: _Side,
    name: str,
    position: int,
    mine: ir.Value | None,
    theirs: ir.Value | None,
    partners: Mapping[ir.Node, ir.Node],
) -> Iterator[Difference]:
    a = None if mine is None else one.constant(mine)
    b = None if theirs is None else two.constant(theirs)
    if mine is not None and theirs is not None and a is not None and b is not None:
        if one.of_value(mine) != two.of_value(theirs):
            detail = "other values" if _kind(a) == _kind(b) else f"{_kind(a)} → {_kind(b)}"
            yield Difference("weight", str(mine.name), detail)
    elif not _same_source(one, two, mine, theirs, partners):
        shown = [repr(value.name) if value is not None else "nothing" for value in (mine, theirs)]
        yield Difference("wiring", name, f"the input {position} is {shown[0]} → {shown[1]}")


def _same_source(
    one: _Side, two: _Side, mine: ir.Value | None, theirs: ir.Value | None, partners: Mapping[ir.Node, ir.Node]
) -> bool:
    """Whether two values have matching producers, regardless of differences further up."""
    if mine is None or theirs is None:
        return mine is theirs
    a, b = mine.producer(), theirs.producer()
    if a is not None and b is not None and not _is_constant(a) and not _is_constant(b):
        return partners.get(a) is b and mine.index() == theirs.index()
    return one.of_value(mine) == two.of_value(theirs)
