"""Converts functions of ``register_custom_op_symbolic`` and ``symbolic_registry.register_op`` to translations."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Sequence

import libcst as cst

from opbridge.legacy.migrate.schemas import Argument, schemas_of
from opbridge.legacy.migrate.script import Edit, Left, Script
from opbridge.legacy.migrate.symbolics import DEFAULT_OPSET, NotConvertible, convert_body, own_parameters

__all__ = ["find"]

_REGISTER = ("torch.onnx.register_custom_op_symbolic", "torch.onnx.utils.register_custom_op_symbolic")
_REGISTER_OP = "torch.onnx.symbolic_registry.register_op"
_DECORATOR = "torch.onnx._internal.registration.onnx_symbolic"
_PARTIAL = "functools.partial"
_KEYWORDS = {
    "symbolic_name": 0, "symbolic_fn": 1, "opset_version": 2,
    "opname": 0, "op": 1, "domain": 2, "version": 3,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Registration:
    """A call that registers a function, which may be a choice between names; an unknown ``opset`` is None."""

    call: cst.Call
    target: str
    function: cst.BaseExpression
    opset: int | None

    @property
    def names(self) -> set[str]:
        return set(_names_of(self.function))


def find(script: Script) -> Iterator[Edit | Left]:
    """Find the registrations of symbolic functions."""
    registrations = []
    for call in script.walk(cst.Call):
        path = script.path(call.func)
        if path in _REGISTER or path == _REGISTER_OP:
            try:
                registrations.append(_read(script, call, path == _REGISTER_OP))
            except (ValueError, KeyError, TypeError):
                yield Left(
                    script.line(call), script.code(call.func), "the operator or function is known only at run time."
                )
    registrations += _decorated(script)
    taken_back = _taken_back(script)
    for together in _connected(registrations):
        needs = set(script.needs)
        try:
            edits = list(_edits(script, together, taken_back))
        except NotConvertible as error:
            script.needs = needs
            for registration in together:
                reason = f"{script.code(registration.function)}, line {script.line(error.node)}: {error.reason}."
                yield Left(script.line(registration.call), registration.target, reason)
        else:
            yield from edits


def _decorated(script: Script) -> Iterator[_Registration]:
    """The functions with the decorator ``onnx_symbolic("aten::asinh", opset=9)``, or a ``partial`` of it."""
    partials = _partials(script)
    for function in script.functions.values():
        for decorator in function.decorators:
            call = decorator.decorator
            if not isinstance(call, cst.Call):
                continue
            given = [*partials.get(script.path(call.func), ()), *call.args]
            if script.path(call.func) != _DECORATOR and script.path(call.func) not in partials:
                continue
            values = {
                item.keyword.value if item.keyword else position: item.value for position, item in enumerate(given)
            }
            name = next((values[key] for key in ("name", *range(len(given))) if key in values), None)
            if isinstance(name, cst.SimpleString):
                namespace, _, operator = str(name.evaluated_value).rpartition("::")
                opset = values.get("opset")
                known = int(opset.value) if isinstance(opset, cst.Integer) else None
                yield _Registration(call, f"{namespace or 'aten'}::{operator}", function.name, known)


def _partials(script: Script) -> dict[str, Sequence[cst.Arg]]:
    """The arguments of each ``partial`` of the decorator, by the name that it is assigned to."""
    found = {}
    for assignment in script.walk(cst.Assign):
        call, target = assignment.value, assignment.targets[0].target
        if not (isinstance(call, cst.Call) and isinstance(target, cst.Name) and script.path(call.func) == _PARTIAL):
            continue
        if call.args and script.path(call.args[0].value) == _DECORATOR:
            found[target.value] = call.args[1:]
    return found


def _read(script: Script, call: cst.Call, by_domain: bool) -> _Registration:
    values = {
        position if argument.keyword is None else _KEYWORDS[argument.keyword.value]: argument.value
        for position, argument in enumerate(call.args)
    }
    name = str(script.value(values[0]))
    if by_domain:
        name = f"{script.value(values[2])}::{name}"
    try:
        opset = int(script.value(values[3 if by_domain else 2]))
    except ValueError:
        opset = None  # For example, the call is in a loop over opsets.
    namespace, _, operator = name.rpartition("::")
    _names_of(values[1])
    return _Registration(call, f"{namespace or 'aten'}::{operator}", values[1], opset)


def _names_of(function: cst.BaseExpression) -> list[str]:
    """Return the names of the functions between which an expression chooses."""
    if isinstance(function, cst.Name):
        return [function.value]
    if isinstance(function, cst.IfExp):
        return [*_names_of(function.body), *_names_of(function.orelse)]
    raise ValueError("not a name")


def _taken_back(script: Script) -> dict[str, cst.Call]:
    """Return the calls that unregister operators, by operator."""
    found = {}
    for call in script.walk(cst.Call):
        if script.path(call.func).endswith(".unregister_custom_op_symbolic") and call.args:
            with contextlib.suppress(ValueError):
                namespace, _, operator = str(script.value(call.args[0].value)).rpartition("::")
                found[f"{namespace or 'aten'}::{operator}"] = call
    return found


def _connected(registrations: Sequence[_Registration]) -> list[list[_Registration]]:
    """Group the registrations that share an operator or a function, which must be converted together."""
    groups: list[list[_Registration]] = []
    for registration in registrations:
        touched = [
            group
            for group in groups
            if any(item.target == registration.target or item.names & registration.names for item in group)
        ]
        merged = [item for group in touched for item in group]
        groups = [group for group in groups if group not in touched]
        groups.append([*merged, registration])
    return groups


def _edits(script: Script, together: Sequence[_Registration], taken_back: dict[str, cst.Call]) -> Iterator[Edit]:
    opsets: dict[str, set[int | None]] = {}
    for item in together:
        opsets.setdefault(item.target, set()).add(item.opset)
        if item.target in taken_back:
            line = script.line(taken_back[item.target])
            raise NotConvertible(
                f"it is unregistered in line {line}, but a translation can't be unregistered", item.call
            )
        if item.opset is not None and item.opset > DEFAULT_OPSET:
            raise NotConvertible(f"it is registered for opset {item.opset} and newer only", item.call)
        if len(opsets[item.target]) > 1:
            raise NotConvertible("it has functions for several opsets; keep the newest", item.call)
    counts = Counter(item.target for item in together)
    at_top = [
        item
        for item in together
        if isinstance(item.function, cst.Name) and counts[item.target] == 1 and _becomes_a_decorator(script, item.call)
    ]
    for name in sorted({name for item in together for name in item.names}):
        its = [item for item in together if name in item.names]
        yield from _edits_of_function(script, name, its, [item for item in at_top if name in item.names])
    for item in together:
        if item not in at_top:
            made = functools.partial(_instead, cst.Call(_decorator(item), [cst.Arg(item.function)]))
            detail = f'@opbridge.translation("{item.target}")'
            yield Edit(item.call, made, script.line(item.call), item.target, detail)


def _edits_of_function(
    script: Script, name: str, registrations: Sequence[_Registration], at_top: Sequence[_Registration]
) -> Iterator[Edit]:
    first = registrations[0]
    function = script.functions.get(name)
    if function is None:
        raise NotConvertible("it is not defined at the top of the file", first.call)
    _refuse_other_uses(script, name, registrations)
    parameters = own_parameters(function)
    schema = _matching(schemas_of(script, first.target), parameters)
    renamed = {
        parameter.name.value: argument.name
        for parameter, argument in zip(parameters, schema, strict=False)
        if argument.keyword_only and argument.name != parameter.name.value
    }
    body = convert_body(script, function, renamed)
    script.needs.add("opbridge")
    own = [_parameter(parameter, position, schema, renamed) for position, parameter in enumerate(parameters)]
    decorators = [cst.Decorator(_decorator(item)) for item in at_top]

    def replace(updated: cst.FunctionDef) -> cst.FunctionDef:
        kept = [item for item in updated.decorators if not script.code(item).strip().startswith("@")]
        return updated.with_changes(
            params=updated.params.with_changes(params=own), decorators=[*decorators, *kept], body=body
        )

    yield Edit(function, replace, script.line(function), name)
    for item in at_top:
        detail = f'@opbridge.translation("{item.target}")'
        if _is_decorator(script, item.call):
            yield Edit(function, lambda updated: updated, script.line(item.call), item.target, detail)
            yield from _without_partial(script)
            continue
        statement = next(node for node in script.parents(item.call) if isinstance(node, cst.SimpleStatementLine))
        yield Edit(statement, lambda updated: cst.RemoveFromParent(), script.line(item.call), item.target, detail)


def _without_partial(script: Script) -> Iterator[Edit]:
    """Remove the ``partial`` of the decorator, which today's torch does not have."""
    for name in _partials(script):
        for assignment in script.walk(cst.Assign):
            if isinstance(assignment.targets[0].target, cst.Name) and assignment.targets[0].target.value == name:
                statement = next(
                    node for node in script.parents(assignment) if isinstance(node, cst.SimpleStatementLine)
                )
                yield Edit(statement, lambda updated: cst.RemoveFromParent(), script.line(assignment), name)


def _is_decorator(script: Script, call: cst.Call) -> bool:
    return isinstance(next(script.parents(call)), cst.Decorator)


def _instead(made: cst.CSTNode, updated: cst.CSTNode) -> cst.CSTNode:
    return made


def _becomes_a_decorator(script: Script, call: cst.Call) -> bool:
    """Return whether a decorator can replace the statement: it is at module level and has no comment."""
    if _is_decorator(script, call):
        return True
    parents = list(script.parents(call))
    statement = next(node for node in parents if isinstance(node, cst.SimpleStatementLine))
    commented = any(line.comment is not None for line in statement.leading_lines)
    return len(parents) == 3 and not commented and isinstance(parents[0], cst.Expr)


def _refuse_other_uses(script: Script, name: str, registrations: Sequence[_Registration]) -> None:
    calls = {id(item.call) for item in registrations}
    for node in script.walk(cst.Name):
        if node.value != name or isinstance(next(script.parents(node)), cst.FunctionDef):
            continue
        parents = list(script.parents(node))
        if script.functions[name] in parents:
            continue  # A parameter or local variable with the same name.
        if isinstance(parents[0], cst.Attribute) and parents[0].attr is node:
            continue
        if isinstance(parents[0], cst.Param) or (isinstance(parents[0], cst.Arg) and parents[0].keyword is node):
            continue
        if not any(id(parent) in calls for parent in parents) and script.path(node) == name:
            raise NotConvertible(f"it is also used in line {script.line(node)}", node)


def _matching(schemas: Sequence[list[Argument]], parameters: Sequence[cst.Param]) -> list[Argument]:
    """Return the schema with as many arguments as the function has parameters, or as it has without its defaults."""
    for count in (len(parameters), sum(item.default is None for item in parameters)):
        found = next((schema for schema in schemas if len(schema) == count), None)
        if found is not None:
            return found
    return []


def _parameter(parameter: cst.Param, position: int, schema: Sequence[Argument], renamed: dict[str, str]) -> cst.Param:
    """Add the default of the schema: a translation does not receive arguments that have their default."""
    changed = parameter.with_changes(name=cst.Name(renamed.get(parameter.name.value, parameter.name.value)))
    if position < len(schema) and schema[position].default is not None and parameter.default is None:
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        changed = changed.with_changes(default=cst.parse_expression(str(schema[position].default)), equal=equal)
    return changed


def _decorator(registration: _Registration) -> cst.BaseExpression:
    return cst.parse_expression(f'opbridge.translation("{registration.target}")')
