"""An ``autograd.Function`` with ``symbolic``: an operator that calls it, and a translation made of ``symbolic``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import libcst as cst

from opbridge.legacy.migrate.script import Edit, Left, Script
from opbridge.legacy.migrate.signature import count_results, parameter_types
from opbridge.legacy.migrate.symbolics import NotConvertible, convert_body, own_parameters, parsed_letters

__all__ = ["find"]

_BASES = ("torch.autograd.Function", "torch.autograd.function.Function", "Function")


def find(script: Script) -> Iterator[Edit | Left]:
    """Every Function of the script that has a ``symbolic``."""
    for node in script.walk(cst.ClassDef):
        symbolic = _method(node, "symbolic")
        if symbolic is None or not any(script.path(base.value) in _BASES for base in node.bases):
            continue
        try:
            yield from _edits(script, _Function(script, node, symbolic))
        except NotConvertible as error:
            yield Left(script.line(error.node), f"{node.name.value}.symbolic", f"{error.reason}.")


@dataclasses.dataclass(frozen=True)
class _Function:
    script: Script
    node: cst.ClassDef
    symbolic: cst.FunctionDef

    @property
    def name(self) -> str:
        return self.node.name.value

    @property
    def forward(self) -> cst.FunctionDef:
        """Its forward, if its shape is one that an operator can have."""
        forward = _method(self.node, "forward")
        if not self.script.is_at_top(self.node):
            raise NotConvertible(
                "the class is made in a function; declare the operator at the top of the file", self.node
            )
        if forward is None:
            raise NotConvertible("the class has no forward", self.node)
        if not _is_static(self.symbolic):
            raise NotConvertible("it is no staticmethod", self.symbolic)
        if forward.params.star_kwarg is not None or isinstance(forward.params.star_arg, cst.Param):
            raise NotConvertible("forward takes starred arguments, which an operator can't have", forward)
        for attribute in self.script.walk(cst.Attribute, forward):
            if attribute.attr.value == "mark_dirty":
                raise NotConvertible("forward changes its input, which an operator may not", attribute)
            if attribute.attr.value in ("tolist", "item"):
                reason = "forward reads the contents of a tensor; declare the operator by hand, with a .fake"
                raise NotConvertible(reason, attribute)
        return forward

    @property
    def parameters(self) -> list[cst.Param]:
        """Those of forward, without its context and its class."""
        parameters = list(self.forward.params.params)
        skipped = 0 if _method(self.node, "setup_context") is not None else 1
        if any(self.script.code(item.decorator) == "classmethod" for item in self.forward.decorators):
            skipped += 1
        return parameters[skipped:]

    @property
    def uses(self) -> list[cst.Attribute]:
        """Every ``Name.apply``."""
        return [
            node
            for node in self.script.walk(cst.Attribute)
            if node.attr.value == "apply" and isinstance(node.value, cst.Name) and node.value.value == self.name
        ]

    @property
    def calls(self) -> list[cst.Call]:
        """Every call of it, by its own name or another given to ``Name.apply``."""
        names = {f"{self.name}.apply"}
        for assign in self.script.walk(cst.Assign):
            if assign.value in self.uses:
                names |= {self.script.code(target.target) for target in assign.targets}
        return [call for call in self.script.walk(cst.Call) if self.script.code(call.func) in names]


def _edits(script: Script, function: _Function) -> Iterator[Edit]:
    parameters, own = function.parameters, own_parameters(function.symbolic)
    names = [parameter.name.value for parameter in own]
    if len(own) < len(parameters):
        raise NotConvertible("it takes fewer arguments than forward", function.symbolic)
    letters = parsed_letters(script, function.symbolic)
    types = parameter_types(script, parameters, function.symbolic, names, letters, function.calls)
    for parameter, kind in zip(parameters, types, strict=True):
        if not kind:
            reason = f"nothing tells whether {parameter.name.value} is a tensor, a number or a string"
            raise NotConvertible(reason, parameter)
    needs = set(script.needs)
    try:
        body = convert_body(script, function.symbolic, {})
    except NotConvertible:
        script.needs = needs
        raise
    name = script.free_name(_snake(function.name))
    # A variable of the script may have the name already; that is no reason to call the operator otherwise.
    target = f"{re.sub(r'[^A-Za-z0-9_]', '_', script.stem)}::{_snake(function.name)}"
    script.needs |= {"opbridge", "torch"}
    operator = _operator(script, function, name, target, parameters, types)
    translation = _translation(function.symbolic, f"{name}_to_onnx", target, body, parameters)

    def replace(updated: cst.ClassDef) -> cst.FlattenSentinel:
        return cst.FlattenSentinel([_without_symbolic(updated), operator, translation])

    detail = f'@opbridge.operator("{target}") and its translation'
    yield Edit(function.node, replace, script.line(function.symbolic), f"{function.name}.symbolic", detail)
    for use in function.uses:
        yield Edit(use, lambda updated: cst.Name(name), script.line(use), f"{function.name}.apply")


def _operator(
    script: Script,
    function: _Function,
    name: str,
    target: str,
    parameters: list[cst.Param],
    types: list[str],
) -> cst.BaseStatement:
    """The operator: its function calls the autograd.Function, so that contexts and gradients stay what they were."""
    count = count_results(script, function.forward, function.symbolic)
    returned = "torch.Tensor" if count == 1 else f"tuple[{', '.join(['torch.Tensor'] * count)}]"
    signature = []
    for parameter, kind in zip(parameters, types, strict=True):
        default = f" = {script.code(parameter.default)}" if parameter.default is not None else ""
        signature.append(f"{parameter.name.value}: {kind}{default}")
    passed = ", ".join(parameter.name.value for parameter in parameters)
    return cst.parse_statement(
        f'\n\n@opbridge.operator("{target}")\ndef {name}({", ".join(signature)}) -> {returned}:\n'
        f"    return {function.name}.apply({passed})\n"
    )


def _translation(
    symbolic: cst.FunctionDef, name: str, target: str, body: cst.BaseSuite, parameters: list[cst.Param]
) -> cst.FunctionDef:
    own = list(symbolic.params.params[1:])
    for position, parameter in enumerate(parameters):
        # A translation is not passed what a call leaves at its default.
        if own[position].default is None and parameter.default is not None:
            own[position] = own[position].with_changes(default=parameter.default, equal=_EQUAL)
    decorator = cst.Decorator(cst.parse_expression(f'opbridge.translation("{target}")'))
    return symbolic.with_changes(
        name=cst.Name(name),
        params=symbolic.params.with_changes(params=own),
        decorators=[decorator],
        body=body,
        leading_lines=[cst.EmptyLine(), cst.EmptyLine()],
    )


_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))


def _without_symbolic(node: cst.ClassDef) -> cst.ClassDef:
    kept = [
        item for item in node.body.body if not (isinstance(item, cst.FunctionDef) and item.name.value == "symbolic")
    ]
    return node.with_changes(body=node.body.with_changes(body=kept))


def _method(node: cst.ClassDef, name: str) -> cst.FunctionDef | None:
    for item in node.body.body:
        if isinstance(item, cst.FunctionDef) and item.name.value == name:
            return item
    return None


def _is_static(function: cst.FunctionDef) -> bool:
    return any(
        isinstance(item.decorator, cst.Name) and item.decorator.value == "staticmethod" for item in function.decorators
    )


def _snake(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return words.lower()
