"""Our own graph for symbolic functions, for the day that torch drops TorchScript's: values, nodes and blocks.

A symbolic function finds the methods that it knows from ``torch._C.Graph``; ``own_context.py`` has the ``g`` that it is
called with.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from opbridge.legacy.own_types import NoneType, TensorType, Type, impersonating

__all__ = ["Block", "Graph", "Node", "Value"]


class Value:
    """A value of the graph.

    Args:
        node: What makes it.
        graph: Gives it its number.
        type_: Of the value.
    """

    __class__ = impersonating("Value")  # type: ignore[assignment]

    def __init__(self, node: Node, graph: Graph, type_: Type | None = None) -> None:
        self._node = node
        self._type: Any = type_ or TensorType()
        self._number = next(graph.numbers)
        self._name = str(self._number)
        self._graph = graph

    def node(self) -> Node:
        """The node that makes it."""
        return self._node

    def type(self) -> Any:
        """Its type."""
        return self._type

    def setType(self, type_: Any) -> Value:
        """Give it another type, one of ours or of torch's."""
        self._type = _own_type(type_)
        return self

    def setTypeAs(self, other: Value) -> Value:
        """Give it the type of another value."""
        return self.setType(other.type())

    def inferTypeFrom(self, tensor: torch.Tensor) -> None:
        """Give it the type of a tensor."""
        self._type = TensorType(tensor.dtype, tuple(tensor.shape))

    def isCompleteTensor(self) -> bool:
        """Whether the element type and all sizes are known."""
        return isinstance(self._type, TensorType) and None not in (self._type.sizes(), self._type.dtype())

    def requiresGrad(self) -> bool:
        """Nothing is differentiated while exporting."""
        return False

    requires_grad = requiresGrad

    def debugName(self) -> str:
        """Its name."""
        return self._name

    def setDebugName(self, name: str) -> Value:
        """Give it another name."""
        self._name = name
        return self

    def unique(self) -> int:
        """Its number."""
        return self._number

    def uses(self) -> list[Node]:
        """The nodes that take it, one for each time."""
        return [node for node in self._graph.all_nodes() for value in node.inputs() if value is self]

    def replaceAllUsesWith(self, other: Value) -> None:
        """Let everything that takes it take ``other``."""
        for node in self._graph.all_nodes():
            node.values = [other if value is self else value for value in node.values]
        for block in self._graph.all_blocks():
            block.results = [other if value is self else value for value in block.results]

    def toIValue(self) -> Any:
        """The contents of a constant; None for any other value."""
        node = self._node
        return node.attributes.get("value", (None, None))[1] if node.kind().endswith("::Constant") else None


def _own_type(type_: Any) -> Any:
    """A type of ours for one of torch's."""
    if isinstance(type_, Type) or type_.kind() != "TensorType":
        return type_
    return TensorType(type_.dtype(), type_.varyingSizes())


class Node:
    """A node of the graph.

    Args:
        kind: "onnx::Add", "custom::Op", "prim::ListConstruct".
        inputs: What it takes; None where an optional input is absent.
        outputs: How many values it makes.
        graph: It belongs to.

    Attributes:
        attributes: Their kinds ("f", "i", "s", "t", "g", "fs", …) and contents, by name.
        values: The inputs.
    """

    __class__ = impersonating("Node")  # type: ignore[assignment]

    def __init__(self, kind: str, inputs: Sequence[Value | None], outputs: int, graph: Graph) -> None:
        self._kind = kind
        self._graph = graph
        self._outputs = [Value(self, graph) for _ in range(outputs)]
        self._blocks: list[Block] = []
        self.values: list[Value | None] = list(inputs)
        self.attributes: dict[str, tuple[str, Any]] = {}

    def kind(self) -> str:
        """The operator."""
        return self._kind

    def inputs(self) -> list[Any]:
        """What it takes."""
        return list(self.values)

    def inputsSize(self) -> int:
        """How many inputs it has."""
        return len(self.values)

    def inputsAt(self, position: int) -> Any:
        """The input at a position."""
        return self.values[position]

    def input(self, position: int = 0) -> Any:
        """The input at a position."""
        return self.values[position]

    def addInput(self, value: Value) -> Value:
        """Take a further value."""
        self.values.append(value)
        return value

    def replaceInput(self, position: int, value: Value) -> None:
        """Take another value at a position."""
        self.values[position] = value

    def outputs(self) -> list[Value]:
        """What it makes."""
        return list(self._outputs)

    def outputsSize(self) -> int:
        """How many values it makes."""
        return len(self._outputs)

    def outputsAt(self, position: int) -> Value:
        """The output at a position."""
        return self._outputs[position]

    def output(self) -> Value:
        """The only output."""
        return self._outputs[0]

    def addOutput(self) -> Value:
        """Make a further value."""
        self._outputs.append(Value(self, self._graph))
        return self._outputs[-1]

    def mustBeNone(self) -> bool:
        """Whether it stands for None."""
        return self._kind == "prim::Constant" and isinstance(self._outputs[0].type(), NoneType)

    def addBlock(self) -> Block:
        """Add a subgraph."""
        self._blocks.append(Block(self._graph, self))
        return self._blocks[-1]

    def blocks(self) -> list[Block]:
        """Its subgraphs."""
        return list(self._blocks)

    def attributeNames(self) -> list[str]:
        """The names of its attributes."""
        return list(self.attributes)

    def hasAttribute(self, name: str) -> bool:
        """Whether it has an attribute of this name."""
        return name in self.attributes

    def kindOf(self, name: str) -> str:
        """The kind of an attribute."""
        return self.attributes[name][0]

    def removeAttribute(self, name: str) -> Node:
        """Take an attribute away."""
        del self.attributes[name]
        return self

    def scopeName(self) -> str:
        """TorchScript notes modules here; the captured graph's own notes say more."""
        return ""

    sourceRange = scopeName

    def __getitem__(self, name: str) -> Any:
        """The contents of an attribute."""
        return self.attributes[name][1]

    def __getattr__(self, name: str) -> Any:
        """``node.t("value")`` reads an attribute of kind ``t``, and ``node.t_("value", tensor)`` sets it."""
        kind = name.removesuffix("_")
        if kind not in _KINDS:
            raise AttributeError(f"a node has no {name!r}")
        if name.endswith("_"):
            return lambda key, contents: self.set(key, kind, contents)
        return lambda key: self.attributes[key][1]

    def set(self, name: str, kind: str, contents: Any) -> Node:
        """Set an attribute of a kind."""
        self.attributes[name] = (kind, _KINDS[kind](contents))
        return self


def _tensor(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else torch.as_tensor(value)


_SINGLE = {"f": float, "i": int, "s": str, "t": _tensor, "z": _tensor, "g": lambda graph: graph}
_KINDS: dict[str, Any] = {
    **_SINGLE,
    **{f"{kind}s": lambda values, one=one: [one(value) for value in values] for kind, one in _SINGLE.items()},
}


class Block:
    """A list of nodes with inputs and results: a graph, or the body of a node.

    Args:
        graph: It belongs to.
        owner: The node whose body it is; None for the graph itself.
    """

    __class__ = impersonating("Block")  # type: ignore[assignment]

    def __init__(self, graph: Graph, owner: Node | None) -> None:
        self._graph = graph
        self._owner = owner
        self._parameters = Node("prim::Param", [], 0, graph)
        self.list: list[Node] = []
        self.results: list[Value] = []

    def nodes(self) -> Iterator[Node]:
        """Its nodes, in order."""
        return iter(list(self.list))

    def inputs(self) -> list[Value]:
        """Its inputs."""
        return self._parameters.outputs()

    def outputs(self) -> list[Value]:
        """Its results."""
        return list(self.results)

    def paramNode(self) -> Node:
        """The node that makes its inputs."""
        return self._parameters

    def owningNode(self) -> Node | None:
        """The node whose body it is."""
        return self._owner

    def addNode(self, kind: str, inputs: Sequence[Value | None]) -> Node:
        """Add a node with one output at the end."""
        self.list.append(Node(kind, inputs, 1, self._graph))
        return self.list[-1]

    def addInputToBlock(self) -> Value:
        """Add an input."""
        return self._parameters.addOutput()

    def registerOutput(self, value: Value) -> int:
        """Make a value a result; returns its position."""
        self.results.append(value)
        return len(self.results) - 1


class Graph:
    """The graph that a symbolic function works on: its own block, and numbers for values."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self._block = Block(self, None)

    def block(self) -> Block:
        """The outermost block."""
        return self._block

    def param_node(self) -> Node:
        """The node that makes the inputs."""
        return self._block.paramNode()

    def nodes(self) -> Iterator[Node]:
        """The nodes of the outermost block."""
        return self._block.nodes()

    def inputs(self) -> list[Value]:
        """The inputs."""
        return self._block.inputs()

    def outputs(self) -> list[Value]:
        """The results."""
        return self._block.outputs()

    def addInput(self, name: str = "") -> Value:
        """Add an input."""
        value = self._block.addInputToBlock()
        return value.setDebugName(name) if name else value

    def registerOutput(self, value: Value) -> int:
        """Make a value a result."""
        return self._block.registerOutput(value)

    def all_blocks(self) -> Iterator[Block]:
        """Every block, outer ones first."""
        waiting = [self._block]
        while waiting:
            block = waiting.pop(0)
            yield block
            waiting.extend(inner for node in block.list for inner in node.blocks())

    def all_nodes(self) -> Iterator[Node]:
        """Every node of every block."""
        for block in self.all_blocks():
            yield from block.list
