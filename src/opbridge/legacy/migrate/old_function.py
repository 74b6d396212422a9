"""An ``autograd.Function`` with ``symbolic`` as the script has it: parameters, calls, what stands in the way."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import libcst as cst

from opbridge.legacy.migrate.script import Script
from opbridge.legacy.migrate.symbolics import NotConvertible

__all__ = ["OldFunction", "assigned_symbolics", "has_function_base", "method"]

_BASES = ("torch.autograd.Function", "torch.autograd.function.Function", "Function")


@dataclasses.dataclass(frozen=True)
class OldFunction:
    """One class.

    Attributes:
        script: What the names in it mean.
        node: The class.
        symbolic: Its symbolic function, in the class or assigned to it.
        assigned: The assignment, if there is one.
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
        """Its forward, if its shape is one that an operator can have."""
        forward = method(self.node, "forward")
        if not self.script.is_at_top(self.node):
            raise NotConvertible(
                "the class is made in a function; declare the operator at the top of the file", self.node
            )
        if forward is None:
            raise NotConvertible("the class has no forward", self.node)
        if self.assigned is None and not (_is(self.symbolic, "staticmethod") or self.of_class):
            raise NotConvertible("it is no staticmethod", self.symbolic)
        if forward.params.star_kwarg is not None or forward.params.kwonly_params:
            raise NotConvertible("forward takes keywords, which apply can't pass", forward)
        for attribute in self.script.walk(cst.Attribute, forward):
            if attribute.attr.value == "mark_dirty":
                raise NotConvertible("forward changes its input, which an operator may not", attribute)
        return forward

    @property
    def of_class(self) -> bool:
        """Whether ``symbolic`` gets the class first."""
        return self.assigned is None and _is(self.symbolic, "classmethod")

    @property
    def parameters(self) -> list[cst.Param]:
        """Those of forward, without its context and its class; a starred one comes last."""
        skipped = 0 if method(self.node, "setup_context") is not None else 1
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
        """The symbolic's parameters from ``g`` on, one for each of forward's; its class is left out."""
        params = self.symbolic.params
        star = params.star_arg
        required = [item for item in params.kwonly_params if item.default is None]
        plain = list(params.params)[1 if self.of_class else 0 :]
        if params.star_kwarg or params.posonly_params or required or not plain:
            raise NotConvertible("its parameters are starred", self.symbolic)
        if not isinstance(star, cst.Param):
            if self.starred:
                raise NotConvertible("forward takes any number of arguments, and symbolic does not", self.symbolic)
            return plain
        missing = self.parameters[len(plain) - 1 :]
        if self.starred:
            if len(missing) != 1:
                raise NotConvertible("its starred parameter is another one than forward's", self.symbolic)
            return [*plain, star.with_changes(star="")]
        return [*plain, *missing]

    @property
    def packed(self) -> tuple[str, list[str]] | None:
        """A starred parameter that gets the arguments that forward names, and their names."""
        star = self.symbolic.params.star_arg
        if not isinstance(star, cst.Param) or self.starred:
            return None
        first = len(self.symbolic.params.params) - 1 - int(self.of_class)
        return star.name.value, [item.name.value for item in self.parameters[first:]]

    @property
    def names_inside(self) -> list[str]:
        """What the symbolic calls each argument; what unpacks a starred parameter tells, too."""
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
        """Every ``Name.apply``."""
        return [
            node
            for node in self.script.walk(cst.Attribute)
            if node.attr.value == "apply" and isinstance(node.value, cst.Name) and node.value.value == self.name
        ]

    @functools.cached_property
    def calls(self) -> list[cst.Call]:
        """Every call of it, by its own name or another given to ``Name.apply``."""
        names = {f"{self.name}.apply"}
        for assign in self.script.walk(cst.Assign):
            if any(assign.value is use for use in self.uses):
                names |= {self.script.code(target.target) for target in assign.targets}
        return [call for call in self.script.walk(cst.Call) if self.script.code(call.func) in names]


def has_function_base(script: Script, node: cst.ClassDef) -> bool:
    """Whether a class is an autograd.Function."""
    return any(script.path(base.value) in _BASES for base in node.bases)


def assigned_symbolics(script: Script) -> Iterator[tuple[cst.Assign, str, OldFunction | None]]:
    """Every ``Name.symbolic = function``, with the Function that gets it where both stand at the top of the script."""
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
    """A class's method."""
    for item in node.body.body:
        if isinstance(item, cst.FunctionDef) and item.name.value == name:
            return item
    return None


def _is(function: cst.FunctionDef, decorator: str) -> bool:
    return any(
        isinstance(item.decorator, cst.Name) and item.decorator.value == decorator for item in function.decorators
    )
