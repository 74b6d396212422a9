"""A parsed script: what its names mean, where things stand, and how edits are put into it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider

__all__ = ["Edit", "Left", "Script", "applied", "literal"]

Node = TypeVar("Node", bound=cst.CSTNode)


@dataclasses.dataclass(frozen=True)
class Edit:
    """Something of the script that is replaced.

    Attributes:
        node: It.
        replace: From the node, with the edits inside it made, to what takes its place.
        line: Where it stands.
        name: What it is called.
        detail: What takes its place, for the user; empty for an edit that only follows from another.
    """

    node: cst.CSTNode
    replace: Callable[[Any], Any]
    line: int
    name: str
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Left:
    """Something old that stays as it is.

    Attributes:
        line: Where it stands.
        name: What it is called.
        detail: Why, and what a human can do.
    """

    line: int
    name: str
    detail: str


class Script:
    """A script of the old kind.

    Attributes:
        module: Its tree; nodes are compared by identity.
        stem: The file's name without its suffix.
        needs: The modules that converted code uses: "opbridge", "op" (an onnxscript opset), "ir".
        names: Every name that is used in it.
    """

    def __init__(self, module: cst.Module, stem: str) -> None:
        self.module = module
        self.stem = stem
        self.needs: set[str] = set()
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self._positions = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self.names = {node.value for node in self.walk(cst.Name)}
        self._imports = _imports(self)

    def walk(self, kind: type[Node], root: cst.CSTNode | None = None) -> Iterator[Node]:
        """Every node of a kind below ``root`` (by default: in the script), in order."""
        nodes = self._nodes if root is None else _below(root)
        return (node for node in nodes if isinstance(node, kind))

    @functools.cached_property
    def _nodes(self) -> list[cst.CSTNode]:
        return list(_below(self.module))

    def line(self, node: cst.CSTNode) -> int:
        """The line that a node begins in."""
        return self._positions[node].start.line

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """What a node stands in, from the inside out."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def is_at_top(self, node: cst.CSTNode) -> bool:
        """Whether a node stands in no function and no class."""
        return not any(isinstance(parent, cst.FunctionDef | cst.ClassDef | cst.Lambda) for parent in self.parents(node))

    def path(self, node: cst.CSTNode) -> str:
        """The import path that a name or attribute means; its own text for a name of the script, "" for the rest."""
        if isinstance(node, cst.Name):
            return self._imports.get(node.value, node.value)
        if isinstance(node, cst.Attribute):
            owner = self.path(node.value)
            return f"{owner}.{node.attr.value}" if owner else ""
        return ""

    def code(self, node: cst.CSTNode) -> str:
        """A node's source."""
        return self.module.code_for_node(node)

    @functools.cached_property
    def functions(self) -> dict[str, cst.FunctionDef]:
        """The functions at the top of the script, by name."""
        return {node.name.value: node for node in self.walk(cst.FunctionDef) if self.is_at_top(node)}

    def free_name(self, wanted: str) -> str:
        """``wanted``, changed if the script uses it already; it counts as used from now on."""
        name = wanted
        while name in self.names:
            name = f"{name}_operator" if name == wanted else f"{name}_"
        self.names.add(name)
        return name


def _below(root: cst.CSTNode) -> Iterator[cst.CSTNode]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def _imports(script: Script) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in script.walk(cst.Import):
        for alias in node.names:
            path = script.code(alias.name)
            if alias.asname is not None:
                found[script.code(alias.asname.name)] = path
            else:
                found[path.partition(".")[0]] = path.partition(".")[0]
    for source in script.walk(cst.ImportFrom):
        if source.module is None or isinstance(source.names, cst.ImportStar):
            continue
        for alias in source.names:
            own = script.code(alias.asname.name if alias.asname is not None else alias.name)
            found[own] = f"{script.code(source.module)}.{script.code(alias.name)}"
    return found


def literal(node: cst.CSTNode) -> Any:
    """The value of a literal expression.

    Raises:
        ValueError: It is none.
    """
    if isinstance(node, cst.Integer | cst.Float | cst.SimpleString):
        return node.evaluated_value
    if isinstance(node, cst.Name) and node.value in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[node.value]
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        return -literal(node.expression)
    if isinstance(node, cst.List | cst.Tuple):
        return [literal(element.value) for element in node.elements]
    if isinstance(node, cst.Dict):
        items = [item for item in node.elements if isinstance(item, cst.DictElement)]
        if len(items) == len(node.elements):
            return {literal(item.key): literal(item.value) for item in items}
    raise ValueError(f"{type(node).__name__} is no literal")


def applied(module: cst.Module, edits: Sequence[Edit]) -> cst.Module:
    """The tree with all edits in it, inner ones first."""
    return module.visit(_Apply(edits))  # type: ignore[return-value]


class _Apply(cst.CSTTransformer):
    def __init__(self, edits: Sequence[Edit]) -> None:
        super().__init__()
        self._edits: dict[int, list[Edit]] = {}
        for edit in edits:
            self._edits.setdefault(id(edit.node), []).append(edit)

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        result = super().on_leave(original_node, updated_node)
        for edit in self._edits.get(id(original_node), ()):
            result = edit.replace(result)
        return result
