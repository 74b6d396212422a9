"""``register_custom_op_symbolic`` and ``symbolic_registry.register_op``: the function becomes a translation."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Sequence

import libcst as cst

from opbridge.legacy.migrate.schemas import Argument, schemas_of
from opbridge.legacy.migrate.script import Edit, Left, Script, literal
from opbridge.legacy.migrate.symbolics import NotConvertible, convert_body, own_parameters

__all__ = ["find"]

_REGISTER = ("torch.onnx.register_custom_op_symbolic", "torch.onnx.utils.register_custom_op_symbolic")
_REGISTER_OP = "torch.onnx.symbolic_registry.register_op"
_NEWEST_OPSET = 18
"""The opset that a translation is written for, if it says no other."""


@dataclasses.dataclass(frozen=True)
class _Registration:
    call: cst.Call
    target: str
    function: str
    opset: int


def find(script: Script) -> Iterator[Edit | Left]:
    """Every registration of a symbolic function."""
    registrations = []
    for call in script.walk(cst.Call):
        path = script.path(call.func)
        if path in _REGISTER or path == _REGISTER_OP:
            try:
                registrations.append(_read(script, call, path == _REGISTER_OP))
            except (ValueError, IndexError, AttributeError):
                yield Left(script.line(call), script.code(call.func), "its arguments are no literals.")
    counts = Counter(registration.target for registration in registrations)
    functions: dict[str, list[_Registration]] = {}
    for registration in registrations:
        if counts[registration.target] > 1:
            detail = "it is registered more than once; keep one of the functions, with the newest opset."
            yield Left(script.line(registration.call), registration.target, detail)
        else:
            functions.setdefault(registration.function, []).append(registration)
    for name, its in functions.items():
        try:
            yield from _edits(script, name, its)
        except NotConvertible as error:
            for registration in its:
                reason = f"{name}, line {script.line(error.node)}: {error.reason}."
                yield Left(script.line(registration.call), registration.target, reason)


def _read(script: Script, call: cst.Call, by_domain: bool) -> _Registration:
    values = [argument.value for argument in call.args]
    name, opset = str(literal(values[0])), int(literal(values[-1]))
    function = values[1]
    if not isinstance(function, cst.Name):
        raise ValueError("no name")
    if by_domain:
        name = f"{literal(values[2])}::{name}"
    namespace, _, operator = name.rpartition("::")
    return _Registration(call, f"{namespace or 'aten'}::{operator}", function.value, opset)


def _edits(script: Script, name: str, registrations: Sequence[_Registration]) -> Iterator[Edit]:
    first = registrations[0]
    function = script.functions.get(name)
    if function is None:
        raise NotConvertible("it is not defined at the top of the file", first.call)
    if first.opset > _NEWEST_OPSET:
        raise NotConvertible(f"it is registered for opset {first.opset} alone", first.call)
    _refuse_other_uses(script, name, registrations)
    parameters = own_parameters(function)
    schema = _matching(schemas_of(script, first.target), len(parameters))
    renamed = {
        parameter.name.value: argument.name
        for parameter, argument in zip(parameters, schema, strict=False)
        if argument.keyword_only and argument.name != parameter.name.value
    }
    needs = set(script.needs)
    try:
        body = convert_body(script, function, renamed)
    except NotConvertible:
        script.needs = needs
        raise
    script.needs.add("opbridge")
    own = [_parameter(parameter, position, schema, renamed) for position, parameter in enumerate(parameters)]
    at_top = [item for item in registrations if _becomes_a_decorator(script, item.call)]
    decorators = [cst.Decorator(_decorator(item)) for item in at_top]

    def replace(updated: cst.FunctionDef) -> cst.FunctionDef:
        kept = [item for item in updated.decorators if not script.code(item).strip().startswith("@")]
        return updated.with_changes(
            params=updated.params.with_changes(params=own), decorators=[*decorators, *kept], body=body
        )

    yield Edit(function, replace, script.line(function), name)
    for item in registrations:
        detail = f'@opbridge.translation("{item.target}")'
        if item in at_top:
            statement = next(node for node in script.parents(item.call) if isinstance(node, cst.SimpleStatementLine))
            yield Edit(statement, lambda updated: cst.RemoveFromParent(), script.line(item.call), item.target, detail)
        else:
            made = functools.partial(_instead, cst.Call(_decorator(item), [cst.Arg(cst.Name(name))]))
            yield Edit(item.call, made, script.line(item.call), item.target, detail)


def _instead(made: cst.CSTNode, updated: cst.CSTNode) -> cst.CSTNode:
    return made


def _becomes_a_decorator(script: Script, call: cst.Call) -> bool:
    """Whether the statement can go: it stands at the top of the file, and no comment belongs to it."""
    statement = next(node for node in script.parents(call) if isinstance(node, cst.SimpleStatementLine))
    commented = any(line.comment is not None for line in statement.leading_lines)
    return script.is_at_top(call) and not commented and isinstance(next(script.parents(call)), cst.Expr)


def _refuse_other_uses(script: Script, name: str, registrations: Sequence[_Registration]) -> None:
    calls = {id(item.call) for item in registrations}
    for node in script.walk(cst.Name):
        if node.value != name or isinstance(next(script.parents(node)), cst.FunctionDef):
            continue
        parents = list(script.parents(node))
        if script.functions[name] in parents:
            continue  # A parameter or variable of its own, of the same name.
        if isinstance(parents[0], cst.Attribute) and parents[0].attr is node:
            continue
        if isinstance(parents[0], cst.Param) or (isinstance(parents[0], cst.Arg) and parents[0].keyword is node):
            continue
        if not any(id(parent) in calls for parent in parents) and script.path(node) == name:
            raise NotConvertible(f"it is also used in line {script.line(node)}", node)


def _matching(schemas: Sequence[list[Argument]], count: int) -> list[Argument]:
    return next((schema for schema in schemas if len(schema) == count), [])


def _parameter(parameter: cst.Param, position: int, schema: Sequence[Argument], renamed: dict[str, str]) -> cst.Param:
    """A parameter with the schema's default: a translation is not passed what the model leaves at its default."""
    changed = parameter.with_changes(name=cst.Name(renamed.get(parameter.name.value, parameter.name.value)))
    if position < len(schema) and schema[position].default is not None and parameter.default is None:
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        changed = changed.with_changes(default=cst.parse_expression(str(schema[position].default)), equal=equal)
    return changed


def _decorator(registration: _Registration) -> cst.BaseExpression:
    return cst.parse_expression(f'opbridge.translation("{registration.target}")')
