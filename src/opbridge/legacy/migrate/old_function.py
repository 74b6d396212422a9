"""An ``autograd.Function`` with a ``symbolic`` in a script: its parameters, its calls and its obstacles."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import libcst as cst

from opbridge.legacy.migrate.script import Script
from opbridge.legacy.migrate.symbolics import NotConvertible

__all__ = ["OldFunction", "assigned_symbolics", "has_function_base", "method"]

_BASES = (
    "torch.autograd.Function",
    "torch.autograd.function.Function",
    "torch.autograd.function.InplaceFunction",
    "Function",
)


@dataclasses.dataclass(frozen=True)
class OldFunction:
    """An autograd.Function of a script.

    Attributes:
        script: The script.
        node: The class.
        symbolic: The symbolic function, defined in the class or assigned to it.
        assigned: The assignment of the symbolic function, if there is one.
    """

    script: Script
    node: cst.ClassDef
    symbolic: cst.FunctionDef
    assigned: cst.SimpleStatementLine | None = None

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.node.name.value

    @functools.cached_property
    def forward(self) -> cst.FunctionDef:
        """The forward of the class; NotConvertible is raised if an operator can't call it."""
        forward = _inherited(self.script, self.node, "forward")
        if not self.script.is_at_top(self.node):
            raise NotConvertible(
                "the class is defined in a function; declare the operator at the top of the file", self.node
            )
        if forward is None:
            raise NotConvertible("the class has no forward", self.node)
        if self.assigned is None and not (_is(self.symbolic, "staticmethod") or self.of_class):
            raise NotConvertible("symbolic is not a staticmethod", self.symbolic)
        if forward.params.star_kwarg is not None or forward.params.kwonly_params:
            raise NotConvertible("forward has keyword parameters, which apply can't pass", forward)
        self._check_names()
        for attribute in self.script.walk(cst.Attribute, forward):
            if attribute.attr.value == "mark_dirty":
                raise NotConvertible("forward modifies its input, which an operator must not do", attribute)
        return forward

    def _check_names(self) -> None:
        """Raise NotConvertible if the class is used in a way in which its calls can't be replaced."""
        for name in self.script.walk(cst.Name):
            if name.value != self.name:
                continue
            parent, outer, *_ = (*self.script.parents(name), None)
            if isinstance(parent, cst.Arg) and isinstance(outer, cst.ClassDef):
                if method(outer, "symbolic") is None:
                    raise NotConvertible(f"{outer.name.value} inherits symbolic", outer)
            elif not isinstance(parent, cst.Attribute | cst.ClassDef) and not (
                isinstance(parent, cst.Arg) and parent.keyword is name
            ):
                raise NotConvertible(f"{self.name} is used other than by {self.name}.apply", name)

    @property
    def of_class(self) -> bool:
        """Whether ``symbolic`` is a classmethod."""
        return self.assigned is None and _is(self.symbolic, "classmethod")

    @property
    def parameters(self) -> list[cst.Param]:
        """The parameters of forward without the context and the class; a starred one comes last."""
        skipped = 0 if _inherited(self.script, self.node, "setup_context") is not None else 1
        if _is(self.forward, "classmethod"):
            skipped += 1
        star = self.forward.params.star_arg
        return [*self.forward.params.params[skipped:], *([star] if isinstance(star, cst.Param) else [])]

    @property
    def starred(self) -> bool:
        """Whether the last parameter takes any number of tensors."""
        return isinstance(self.forward.params.star_arg, cst.Param)

    @functools.cached_property
    def graph_and_own(self) -> list[cst.Param]:
        """The parameters of symbolic from ``g`` on, one for each parameter of forward, without the class."""
        params = self.symbolic.params
        star = params.star_arg
        required = [item for item in params.kwonly_params if item.default is None]
        plain = list(params.params)[1 if self.of_class else 0 :]
        if params.star_kwarg or params.posonly_params or required or not plain:
            raise NotConvertible("symbolic has starred parameters", self.symbolic)
        if not isinstance(star, cst.Param):
            if self.starred:
                raise NotConvertible("forward takes any number of arguments, but symbolic does not", self.symbolic)
            return plain
        missing = self.parameters[len(plain) - 1 :]
        if self.starred:
            if len(missing) != 1:
                raise NotConvertible("the starred parameters of symbolic and forward differ", self.symbolic)
            return [*plain, star.with_changes(star="")]
        return [*plain, *missing]

    @property
    def packed(self) -> tuple[str, list[str]] | None:
        """The starred parameter of symbolic and the names in forward of its arguments; None without one."""
        star = self.symbolic.params.star_arg
        if not isinstance(star, cst.Param) or self.starred:
            return None
        first = len(self.symbolic.params.params) - 1 - int(self.of_class)
        return star.name.value, [item.name.value for item in self.parameters[first:]]

    @property
    def names_inside(self) -> list[str]:
        """The name of each argument in symbolic, including names to which a starred parameter is unpacked."""
        names = [item.name.value for item in self.graph_and_own[1:]]
        if self.packed is not None:
            star, packed = self.packed
            for assign in self.script.walk(cst.Assign, self.symbolic):
                target = assign.targets[0].target
                if self.script.code(assign.value) == star and isinstance(target, cst.Tuple):
                    names[-len(packed) :] = [self.script.code(item.value) for item in target.elements][: len(packed)]
        return names

    @functools.cached_property
    def uses(self) -> list[cst.Attribute]:
        """All occurrences of ``Name.apply``."""
        return [
            node
            for node in self.script.walk(cst.Attribute)
            if node.attr.value == "apply" and isinstance(node.value, cst.Name) and node.value.value == self.name
        ]

    @functools.cached_property
    def calls(self) -> list[cst.Call]:
        """All calls of ``Name.apply``, also through another name assigned to it."""
        names = {f"{self.name}.apply"}
        for assign in self.script.walk(cst.Assign):
            if any(assign.value is use for use in self.uses):
                names |= {self.script.code(target.target) for target in assign.targets}
        return [call for call in self.script.walk(cst.Call) if self.script.code(call.func) in names]


def has_function_base(script: Script, node: cst.ClassDef) -> bool:
    """Return whether a class is an autograd.Function, directly or through other classes of the script."""
    return any(script.path(base.value) in _BASES for base in node.bases) or any(
        has_function_base(script, other) for other in _bases(script, node)
    )


def _bases(script: Script, node: cst.ClassDef) -> list[cst.ClassDef]:
    """Return the base classes of a class that are defined in the script."""
    names = {script.code(base.value) for base in node.bases} - {node.name.value}
    return [other for other in script.walk(cst.ClassDef) if other.name.value in names]


def _inherited(script: Script, node: cst.ClassDef, name: str) -> cst.FunctionDef | None:
    found = (_inherited(script, other, name) for other in _bases(script, node))
    return method(node, name) or next(filter(None, found), None)


def assigned_symbolics(script: Script) -> Iterator[tuple[cst.Assign, str, OldFunction | None]]:
    """Find each ``Name.symbolic = function``, with its Function if both are at the top level of the script."""
    classes = {node.name.value: node for node in script.walk(cst.ClassDef) if script.is_at_top(node)}
    for assign in script.walk(cst.Assign):
        target = assign.targets[0].target
        if not isinstance(target, cst.Attribute) or target.attr.value != "symbolic":
            continue
        given = assign.value
        if isinstance(given, cst.Call) and script.code(given.func) == "staticmethod" and len(given.args) == 1:
            given = given.args[0].value
        node, function = classes.get(script.code(target.value)), script.functions.get(script.code(given))
        parents = list(script.parents(assign))
        statement = parents[0]
        if node is None or function is None or len(parents) != 2 or method(node, "symbolic") is not None:
            yield assign, script.code(target), None
        elif isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
            yield assign, script.code(target), OldFunction(script, node, function, statement)


def method(node: cst.ClassDef, name: str) -> cst.FunctionDef | None:
    """Return a method of a class; None if it has no such method."""
    for item in node.body.body:
        if isinstance(item, cst.FunctionDef) and item.name.value == name:
            return item
    return None


def _is(function: cst.FunctionDef, decorator: str) -> bool:
    return any(
        isinstance(item.decorator, cst.Name) and item.decorator.value == decorator for item in function.decorators
    )
