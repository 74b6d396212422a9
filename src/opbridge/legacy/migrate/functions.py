"""Converts an ``autograd.Function`` with a ``symbolic`` to an operator that calls it and a translation."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import libcst as cst

from opbridge.legacy.migrate import fakes
from opbridge.legacy.migrate.fixed_arguments import fixed_arguments, may_return_an_argument, without_positions
from opbridge.legacy.migrate.old_function import OldFunction, assigned_symbolics, has_function_base, method
from opbridge.legacy.migrate.script import EQUAL, Edit, Left, Script
from opbridge.legacy.migrate.signature import count_results, is_object, parameter_types
from opbridge.legacy.migrate.symbolics import NotConvertible, convert_body, parsed_letters

__all__ = ["find"]

_TRACING = ("torch._C._get_tracing_state", "torch._C._set_tracing_state")


def find(script: Script) -> Iterator[Edit | Left]:
    """Find the Functions of the script that have a ``symbolic``."""
    found: list[tuple[str, OldFunction]] = []
    for node in script.walk(cst.ClassDef):
        symbolic = method(node, "symbolic")
        if symbolic is not None and has_function_base(script, node):
            found.append((f"{node.name.value}.symbolic", OldFunction(script, node, symbolic)))
        elif symbolic is not None and node.bases:
            detail = "its base class is not in this file; convert the class by hand."
            yield Left(script.line(symbolic), f"{node.name.value}.symbolic", detail)
    for name, line in _given_as_objects(script):
        yield Left(line, name, "symbolic is an object that is assigned in the class; define the function there.")
    for assign, name, function in assigned_symbolics(script):
        if function is None:
            detail = "it is assigned at run time; declare an operator with a translation instead."
            yield Left(script.line(assign), name, detail)
        else:
            found.append((name, function))
    for name, function in found:
        needs = set(script.needs)
        try:
            edits = list(_edits(script, function))
        except NotConvertible as error:
            script.needs = needs
            yield Left(script.line(error.node), name, f"{error.reason}.")
        else:
            yield from edits


def _given_as_objects(script: Script) -> Iterator[tuple[str, int]]:
    """Find the ``symbolic = ...`` in the bodies of classes."""
    for node in script.walk(cst.ClassDef):
        for line in node.body.body:
            for item in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                if isinstance(item, cst.Assign) and script.code(item.targets[0].target) == "symbolic":
                    yield f"{node.name.value}.symbolic", script.line(item)


def _edits(script: Script, function: OldFunction) -> Iterator[Edit]:
    parameters, own = function.parameters, function.graph_and_own[1:]
    if len(own) < len(parameters):
        raise NotConvertible("symbolic takes fewer arguments than forward", function.symbolic)
    for node in script.walk(cst.Attribute, function.forward):
        if script.path(node) in _TRACING:
            raise NotConvertible("forward is written for the tracer, and an operator is never traced", node)
    fake = fakes.fake_of(function)
    body = _body(script, function)
    types, fixed = _types(script, function)
    body = _with_objects(script, function, body, fixed)
    changed_calls = list(_changed_calls(script, function, fixed))
    name = script.free_name(_snake(function.name))
    # If the script already uses the name of the function, the operator can still have it.
    target = f"{re.sub(r'[^A-Za-z0-9_]', '_', script.stem)}::{_snake(function.name)}"
    script.needs |= {"opbridge", "torch"}
    made: list[cst.BaseStatement] = [_operator(script, function, name, target, types, fixed)]
    if fake is not None:
        made.append(fake.statement(name))
    translation = _translation(function, f"{name}_to_onnx", target, body, fixed)
    detail = f'@opbridge.operator("{target}"){", its fake" if fake is not None else ""} and its translation'

    def replace(updated: cst.ClassDef) -> cst.FlattenSentinel:
        if function.assigned is not None:
            return cst.FlattenSentinel([updated, *made])
        return cst.FlattenSentinel([_without_symbolic(updated), *made, translation])

    yield Edit(function.node, replace, script.line(function.symbolic), f"{function.name}.symbolic", detail)
    if function.assigned is not None:
        yield Edit(function.symbolic, lambda updated: translation, script.line(function.symbolic), function.name)
        yield Edit(
            function.assigned, lambda updated: cst.RemoveFromParent(), script.line(function.assigned), "symbolic"
        )
    yield from changed_calls
    for use in function.uses:
        yield Edit(use, lambda updated: cst.Name(name), script.line(use), f"{function.name}.apply")


def _types(script: Script, function: OldFunction) -> tuple[list[str], dict[int, str]]:
    """Return the annotations of the parameters, and the objects of those that the operator does not take."""
    letters = parsed_letters(script, function.symbolic)
    graph = function.graph_and_own[0].name.value
    types = parameter_types(
        script, function.parameters, function.symbolic, graph, function.names_inside, letters, function.calls
    )
    if function.starred:
        types[-1] = "list[torch.Tensor]"
    fixed = fixed_arguments(script, function, types)
    for position, (parameter, kind, name) in enumerate(
        zip(function.parameters, types, function.names_inside, strict=False)
    ):
        if position in fixed:
            continue
        if position < len(letters) and letters[position] == "t":
            reason = f"{parameter.name.value} is a constant tensor whose contents symbolic reads"
            raise NotConvertible(reason, parameter)
        if not kind and is_object(script, function.symbolic, name):
            raise NotConvertible(f"{parameter.name.value} is an object, which an operator can't take", parameter)
        if not kind:
            reason = f"{parameter.name.value} has an unknown type; annotate it in forward as a tensor, number or string"
            raise NotConvertible(reason, parameter)
    return types, fixed


def _body(script: Script, function: OldFunction) -> cst.BaseSuite:
    """Return the body of the translation; the arguments of a starred parameter are packed into a tuple."""
    params = function.symbolic.params
    renamed = {params.params[0].name.value: function.name} if function.of_class else {}
    plain = function.symbolic.with_changes(params=params.with_changes(params=function.graph_and_own))
    body = convert_body(script, plain, renamed, of_class=True)
    if function.packed is None:
        return body
    name, packed = function.packed
    statement = cst.parse_statement(f"{name} = ({', '.join(packed)}{',' if len(packed) == 1 else ''})\n")
    return body.with_changes(body=[statement, *body.body])


def _with_objects(script: Script, function: OldFunction, body: cst.BaseSuite, fixed: dict[int, str]) -> cst.BaseSuite:
    """Return the body with the names of the arguments that are the same in all calls."""
    own = function.names_inside
    used = {node.value for node in script.walk(cst.Name, function.symbolic.body)}
    bound = [
        cst.parse_statement(f"{own[position]} = {text}\n")
        for position, text in fixed.items()
        if own[position] in used and own[position] != text
    ]
    return body.with_changes(body=[*bound, *body.body])


def _changed_calls(script: Script, function: OldFunction, fixed: dict[int, str]) -> Iterator[Edit]:
    """Yield edits for the calls: an operator takes starred tensors as a list, and no argument that is fixed."""
    for call in function.calls if fixed else ():
        made = functools.partial(without_positions, positions=fixed)
        yield Edit(call, made, script.line(call), f"{function.name}.apply")
    if not function.starred:
        return
    first = len(function.parameters) - 1
    calls = function.calls
    if any(not any(use is call.func for call in calls) for use in function.uses):
        raise NotConvertible(
            "forward has a starred parameter, and apply is stored under another name", function.forward
        )

    def replace(updated: cst.Call) -> cst.Call:
        before, tensors = updated.args[:first], updated.args[first:]
        elements: list[cst.BaseElement] = [
            cst.StarredElement(item.value) if item.star else cst.Element(item.value) for item in tensors
        ]
        last = cst.Arg(cst.List(elements), comma=tensors[-1].comma if tensors else cst.MaybeSentinel.DEFAULT)
        return updated.with_changes(args=[*before, last])

    for call in calls:
        if any(_is_number(script, item) for item in call.args[first:]):
            raise NotConvertible("forward has a starred parameter that takes other values than tensors", call)
        if any(item.star or item.keyword for item in call.args[:first]):
            raise NotConvertible("forward has a starred parameter, and a call of it has starred arguments", call)
        yield Edit(call, replace, script.line(call), f"{function.name}.apply")


def _first_default(function: OldFunction, types: list[str]) -> int:
    """Return the position of the first parameter that can keep its default: a list is no default of an operator."""
    lists = [
        position
        for position, (parameter, kind) in enumerate(zip(function.parameters, types, strict=True))
        if parameter.default is not None and kind.startswith("list")
    ]
    if not lists:
        return 0
    short = next((call for call in function.calls if len(call.args) <= lists[-1]), None)
    if short is not None:
        name = function.parameters[lists[-1]].name.value
        raise NotConvertible(f"a call leaves out {name}, whose default an operator can't have", short)
    return lists[-1] + 1


def _is_number(script: Script, argument: cst.Arg) -> bool:
    try:
        script.value(argument.value)
    except ValueError:
        return False
    return True


def _operator(
    script: Script, function: OldFunction, name: str, target: str, types: list[str], fixed: dict[int, str]
) -> cst.BaseStatement:
    """Return the operator, whose function calls the autograd.Function, so that its gradients are kept."""
    count = count_results(script, function.forward, function.symbolic)
    returned = "torch.Tensor" if count == 1 else f"tuple[{', '.join(['torch.Tensor'] * count)}]"
    signature, passed = [], []
    first_default = _first_default(function, types)
    for position, (parameter, kind) in enumerate(zip(function.parameters, types, strict=True)):
        if position in fixed:
            passed.append(fixed[position])
            continue
        kept = parameter.default is not None and position >= first_default
        default = f" = {script.code(parameter.default)}" if kept and parameter.default is not None else ""
        signature.append(f"{parameter.name.value}: {kind}{default}")
        star = "*" if parameter is function.forward.params.star_arg else ""
        passed.append(f"{star}{parameter.name.value}")
    call = f"{function.name}.apply({', '.join(passed)})"
    if count == 1 and may_return_an_argument(script, function.forward):
        call += ".clone()"
    return cst.parse_statement(
        f'\n\n@opbridge.operator("{target}")\ndef {name}({", ".join(signature)}) -> {returned}:\n    return {call}\n'
    )


def _translation(
    function: OldFunction, name: str, target: str, body: cst.BaseSuite, fixed: dict[int, str]
) -> cst.FunctionDef:
    symbolic = function.symbolic
    own = [item.with_changes(annotation=None) for item in function.graph_and_own[1:]]
    for position, parameter in enumerate(function.parameters):
        # A translation does not receive arguments that have their default.
        if own[position].default is None and parameter.default is not None:
            own[position] = own[position].with_changes(default=parameter.default, equal=EQUAL)
    own = [item for position, item in enumerate(own) if position not in fixed]
    decorator = cst.Decorator(cst.parse_expression(f'opbridge.translation("{target}")'))
    params = symbolic.params.with_changes(params=own, star_arg=cst.MaybeSentinel.DEFAULT)
    assigned = function.assigned is not None
    return symbolic.with_changes(
        name=symbolic.name if assigned else cst.Name(name),
        params=params,
        decorators=[decorator],
        body=body,
        leading_lines=symbolic.leading_lines if assigned else [cst.EmptyLine(), cst.EmptyLine()],
    )


def _without_symbolic(node: cst.ClassDef) -> cst.ClassDef:
    kept = [
        item for item in node.body.body if not (isinstance(item, cst.FunctionDef) and item.name.value == "symbolic")
    ]
    return node.with_changes(body=node.body.with_changes(body=kept or [cst.parse_statement("pass")]))


def _snake(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return words.lower()
