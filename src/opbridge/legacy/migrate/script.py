"""A parsed script: the meaning of its names, the positions of its nodes, and the application of edits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import GlobalScope, MetadataWrapper, ParentNodeProvider, PositionProvider, ScopeProvider

from opbridge.legacy.migrate.literals import literal

__all__ = ["EQUAL", "Edit", "Left", "Script", "applied", "is_name"]

Node = TypeVar("Node", bound=cst.CSTNode)
EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
"""The equals sign of a keyword argument or a default value."""


@dataclasses.dataclass(frozen=True)
class Edit:
    """The replacement of a node of the script.

    Attributes:
        node: The node to replace.
        replace: A function from the node, with all edits inside it applied, to its replacement.
        line: The line of the node.
        name: The name of the declaration or argument, for the user.
        detail: The replacement in words, for the user; empty for an edit that only follows from another one.
    """

    node: cst.CSTNode
    replace: Callable[[Any], Any]
    line: int
    name: str
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Left:
    """An old declaration or argument that is left unchanged.

    Attributes:
        line: The line of the declaration or argument.
        name: The name of the declaration or argument, for the user.
        detail: The reason, and how to convert it by hand.
    """

    line: int
    name: str
    detail: str


class Script:
    """An old export script.

    Attributes:
        module: The syntax tree; nodes are compared by identity.
        stem: The name of the file without its suffix.
        needs: The modules that the converted code uses: "opbridge", "op" (an onnxscript opset), "ir".
        names: All names that occur in the script.
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
        """Iterate over all nodes of a kind below ``root`` (by default, in the whole script), in order."""
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
        """Return the first line of a node."""
        return self._positions[node].start.line

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Iterate over the nodes that enclose a node, innermost first."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def is_at_top(self, node: cst.CSTNode) -> bool:
        """Return whether a node is outside all functions and classes."""
        return not any(isinstance(parent, cst.FunctionDef | cst.ClassDef | cst.Lambda) for parent in self.parents(node))

    def path(self, node: cst.CSTNode) -> str:
        """Return the import path of a name or attribute. A name of the script is its own path; others have none."""
        if isinstance(node, cst.Name):
            return self._imports.get(node.value, node.value)
        if isinstance(node, cst.Attribute):
            owner = self.path(node.value)
            return f"{owner}.{node.attr.value}" if owner else ""
        return ""

    def code(self, node: cst.CSTNode) -> str:
        """Return the source of a node."""
        return self.module.code_for_node(node)

    def value(self, node: cst.CSTNode) -> Any:
        """Return the value of an expression of literals and module-level constants.

        Raises:
            ValueError: The value is not known before the script runs.
        """
        try:
            return literal(node, self._constant, self._called)
        except RecursionError as error:
            raise ValueError("it refers to itself") from error

    def _called(self, call: cst.Call) -> Any:
        """Evaluate the call of a function of the script that only returns an expression of its parameters."""
        function = self.functions.get(self.code(call.func))
        expression = None if function is None else _only_expression(function)
        names = [] if function is None else [item.name.value for item in function.params.params]
        if expression is None or len(names) != len(call.args) or any(item.star or item.keyword for item in call.args):
            raise ValueError(f"{self.code(call.func)} is not a function of one expression")
        given = dict(zip(names, (item.value for item in call.args), strict=True))
        return literal(expression, lambda name: given.get(name.value) or self._constant(name), self._called)

    def is_imported(self, node: cst.Attribute) -> bool:
        """Return whether an attribute is one of an imported module, such as ``torch.int8``."""
        root: cst.BaseExpression = node
        while isinstance(root, cst.Attribute):
            root = root.value
        return isinstance(root, cst.Name) and root.value in self._imports

    def is_global(self, name: cst.Name) -> bool:
        """Return whether a name is assigned once, at the top of the script, so that it always means one object."""
        scope = self._scopes.get(name)
        assignments = list(scope[name.value]) if scope is not None else []
        return len(assignments) == 1 and isinstance(assignments[0].scope, GlobalScope)

    def _constant(self, name: cst.Name) -> cst.BaseExpression | None:
        """Return the value assigned to a module-level name, if there is a single, unconditional assignment."""
        scope = self._scopes.get(name)
        assignments = list(scope[name.value]) if scope is not None else []
        if len(assignments) != 1 or not isinstance(assignments[0].scope, GlobalScope):
            return None
        node = getattr(assignments[0], "node", None)
        parents = list(self.parents(node)) if node is not None else []
        if len(parents) != 4 or not isinstance(parents[1], cst.Assign):
            return None  # They are the target, the assignment, its line and the module.
        return parents[1].value

    @functools.cached_property
    def _scopes(self) -> Any:
        return self._wrapper.resolve(ScopeProvider)

    @functools.cached_property
    def functions(self) -> dict[str, cst.FunctionDef]:
        """The top-level functions, by name."""
        return {node.name.value: node for node in self.walk(cst.FunctionDef) if self.is_at_top(node)}

    def free_name(self, wanted: str) -> str:
        """Return ``wanted``, or a variant of it if the script already uses that name; reserve the result."""
        name = wanted
        while name in self.names:
            name = f"{name}_operator" if name == wanted else f"{name}_"
        self.names.add(name)
        return name


def _only_expression(function: cst.FunctionDef) -> cst.BaseExpression | None:
    """Return what a function returns, if it does nothing else."""
    body = function.body.body if isinstance(function.body, cst.IndentedBlock) else ()
    last = body[-1] if len(body) == (1 if function.get_docstring() is None else 2) else None
    statement = last.body[0] if isinstance(last, cst.SimpleStatementLine) else None
    return statement.value if isinstance(statement, cst.Return) else None


def is_name(node: cst.CSTNode, name: str) -> bool:
    """Return whether a node is this name."""
    return isinstance(node, cst.Name) and node.value == name


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
    """Return the tree with all edits applied, inner ones first."""
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
