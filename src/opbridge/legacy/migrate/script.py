"""A parsed script: what its names mean, where things stand, and how edits are put into it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import GlobalScope, MetadataWrapper, ParentNodeProvider, PositionProvider, ScopeProvider

from opbridge.legacy.migrate.literals import literal

__all__ = ["Edit", "Left", "Script", "applied"]

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
        self._wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self._positions = self._wrapper.resolve(PositionProvider)
        self._parents = self._wrapper.resolve(ParentNodeProvider)
        self.names = {node.value for node in self.walk(cst.Name)}
        self._imports = _imports(self)

    def walk(self, kind: type[Node], root: cst.CSTNode | None = None) -> Iterator[Node]:
        """Every node of a kind below ``root`` (by default: in the script), in order."""
        if root is None:
            return iter(self._nodes.get(kind, ()))
        return (node for node in _below(root) if isinstance(node, kind))

    @functools.cached_property
    def _nodes(self) -> dict[type, list[Any]]:
        found: dict[type, list[Any]] = {}
        for node in _below(self.module):
            found.setdefault(type(node), []).append(node)
        return found

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

    def value(self, node: cst.CSTNode) -> Any:
        """The value of an expression of literals and of constants of the module.

        Raises:
            ValueError: It can't be told.
        """
        try:
            return literal(node, self._constant)
        except RecursionError as error:
            raise ValueError("it is made of itself") from error

    def _constant(self, name: cst.Name) -> cst.BaseExpression | None:
        """What a module-level name is given, if that happens once and in every case."""
        scope = self._scopes.get(name)
        assignments = list(scope[name.value]) if scope is not None else []
        if len(assignments) != 1 or not isinstance(assignments[0].scope, GlobalScope):
            return None
        node = getattr(assignments[0], "node", None)
        parents = list(self.parents(node)) if node is not None else []
        if len(parents) != 4 or not isinstance(parents[1], cst.Assign):
            return None  # A plain assignment stands in a line, which stands in the module.
        return parents[1].value

    @functools.cached_property
    def _scopes(self) -> Any:
        return self._wrapper.resolve(ScopeProvider)

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
