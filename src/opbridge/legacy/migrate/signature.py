"""Infers the types of the parameters of an operator, which ``torch.library`` needs and old scripts do not declare."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from opbridge.legacy.migrate.script import Script, is_name
from opbridge.legacy.migrate.symbolics import NotConvertible

__all__ = ["count_results", "is_object", "parameter_types"]

_LETTERS = {"v": "torch.Tensor", "i": "int", "f": "float", "b": "bool", "s": "str", "is": "list[int]",
            "fs": "list[float]"}  # fmt: skip
_SUFFIXES = {"f": "float", "i": "int", "s": "str"}
_NUMBER = "number"
"""The argument of a constant: its calls determine whether it is an int or a float."""
_ANNOTATIONS = {"int", "float", "bool", "str", "list[int]", "list[float]", "torch.Tensor"}


def parameter_types(
    script: Script,
    parameters: Sequence[cst.Param],
    symbolic: cst.FunctionDef,
    graph: str,
    names: Sequence[str],
    letters: Sequence[str],
    calls: Sequence[cst.Call],
) -> list[str]:
    """Return the type of each parameter of a Function; "" for an unknown type.

    Args:
        script: The script.
        parameters: The parameters of ``forward`` after ``ctx``.
        symbolic: The symbolic function.
        graph: The name of the graph parameter in the symbolic function.
        names: The names of the parameters in the symbolic function.
        letters: The argument descriptors of ``@parse_args``; empty without it.
        calls: All calls of ``apply`` of the Function.
    """
    types = []
    for position, parameter in enumerate(parameters):
        name = names[position] if position < len(names) else ""
        own = next((item for item in symbolic.params.params if item.name.value == name), None)
        annotation = _annotated(script, parameter)
        if not annotation and own is not None and "Tensor" not in _annotated(script, own):
            annotation = _annotated(script, own)  # Old code annotates numbers as values of the graph, too.
        code = letters[position] if position < len(letters) else ""
        given = _given(script, calls, position, parameter)
        optional = (
            "None" in given or annotation.endswith("| None") or code == "none" or _may_be_none(script, symbolic, name)
        )
        plain = next(iter(given - {"None"}), "") if len(given - {"None"}) <= 1 else _number(given - {"None"})
        kind = (
            annotation.removesuffix(" | None")
            or _LETTERS.get(code, "")
            or _merged(plain, _used_as(script, symbolic, graph, name))
        )
        if kind in ("int", "float") and not annotation and _is_computed(script, calls, position):
            kind = ""
        if code == "none" and not kind:
            kind = "torch.Tensor"  # The symbolic function accepts only None for it.
        types.append(f"{kind} | None" if kind and optional and "None" not in kind else kind)
    return types


def _number(kinds: set[str]) -> str:
    return "float" if kinds == {"int", "float"} else ""


_SCALARS = ("bool", "float", "int", "len", "max", "min", "round", "sum")


def _is_computed(script: Script, calls: Sequence[cst.Call], position: int) -> bool:
    """Return whether a function computes what is passed, which may be a list where one number is expected."""
    values = (call.args[position].value for call in calls if position < len(call.args))
    return any(isinstance(value, cst.Call) and script.code(value.func) not in _SCALARS for value in values)


def _may_be_none(script: Script, symbolic: cst.FunctionDef, name: str) -> bool:
    """Return whether the symbolic function compares the parameter with None."""
    for comparison in script.walk(cst.Comparison, symbolic.body):
        other = comparison.comparisons[0]
        if isinstance(other.operator, cst.Is | cst.IsNot) and is_name(comparison.left, name):
            return is_name(other.comparator, "None")
    return any(
        call.args and script.path(call.func).endswith("._is_none") and is_name(call.args[0].value, name)
        for call in script.walk(cst.Call, symbolic.body)
    )


def _merged(given: str, used: str) -> str:
    """Prefer the type of the passed value to that of the attribute, except that an int may stand for a float."""
    if used == _NUMBER:
        return given or "float"
    if given == "int" and used == "float":
        return "float"
    if given == "list[int]" and "float" in used:
        return "list[float]"
    return given or used


def _annotated(script: Script, parameter: cst.Param) -> str:
    if parameter.annotation is None:
        return ""
    node, optional = _without_optional(script, parameter.annotation.annotation)
    text = re.sub(r"\b(typing\.)?(List|Sequence)\b", "list", script.code(node))
    if script.path(node) in _TENSORS:
        text = "torch.Tensor"
    return f"{text}{optional}" if text in _ANNOTATIONS else ""


_TENSORS = ("torch.Tensor", "torch.Value", "torch.nn.Parameter", "torch.nn.parameter.Parameter")


def _without_optional(script: Script, node: cst.BaseExpression) -> tuple[cst.BaseExpression, str]:
    """Return the type inside ``Optional[...]`` and " | None", or the type itself and an empty string."""
    if isinstance(node, cst.Subscript) and script.path(node.value).endswith("Optional"):
        index = node.slice[0].slice
        return (index.value if isinstance(index, cst.Index) else node), " | None"
    return node, ""


def _given(script: Script, calls: Sequence[cst.Call], position: int, parameter: cst.Param) -> set[str]:
    """Return the types of the literals that are passed, with an empty string for an unsupported type."""
    kinds = set()
    values = [call.args[position].value for call in calls if position < len(call.args)]
    if parameter.default is not None and len(values) < max(len(calls), 1):
        values.append(parameter.default)
    for value in values:
        known = _of_call(script, value)
        if known:
            kinds.add(known)
            continue
        try:
            kinds.add(_kind(script.value(value)))
        except ValueError:
            continue
    return kinds


def _of_call(script: Script, value: cst.BaseExpression) -> str:
    """Return the type of the result of a call of torch; empty for any other expression."""
    path = script.path(value.func) if isinstance(value, cst.Call) else ""
    if path in _PAIRS:
        return "list[int]"
    return "torch.Tensor" if path in _MAKING_TENSORS else ""


_MAKING_TENSORS = {
    f"torch.{name}" for name in ("tensor", "ones", "zeros", "full", "empty", "rand", "randn", "arange", "linspace")
}
_PAIRS = {f"torch.nn.modules.utils.{name}" for name in ("_single", "_pair", "_triple", "_quadruple")}


def _kind(value: object) -> str:
    if isinstance(value, list) and value:
        inner = {type(item).__name__ for item in value}
        return f"list[{'float' if 'float' in inner else 'int'}]" if inner <= {"int", "float"} else ""
    name = type(value).__name__
    if value is None:
        return "None"
    return name if name in ("int", "float", "bool", "str") else ""


def _used_as(script: Script, symbolic: cst.FunctionDef, graph: str, name: str) -> str:
    """Infer the type from the uses in the symbolic function."""
    if name in _spread(script, symbolic, graph):
        return "torch.Tensor"
    if is_object(script, symbolic, name):
        return ""
    for call in script.walk(cst.Call, symbolic.body):
        is_node = isinstance(call.func, cst.Attribute) and script.code(call.func.value) == graph
        if script.path(call.func) == "torch.tensor" and name in _names(script, call.args[0]):
            return "int" if any(script.path(item.value) == "torch.int64" for item in call.args[1:]) else _NUMBER
        for argument in call.args:
            value = argument.value
            if argument.keyword is not None and is_node:
                kind = _SUFFIXES.get(argument.keyword.value.rpartition("_")[2], "")
                if kind and any(
                    name in _names(script, item) for each in script.walk(cst.Subscript, value) for item in each.slice
                ):
                    return ""  # It selects the value of the attribute.
                if kind and name in _names(script, value):
                    is_list = isinstance(value, cst.Call) and script.code(value.func) in ("list", "tuple")
                    is_list = is_list or any(is_name(item.value, name) for item in script.walk(cst.Subscript, value))
                    return f"list[{kind}]" if is_list else kind
            elif is_name(value, name) and (is_node or (call.args and is_name(call.args[0].value, graph))):
                return "torch.Tensor"
        if isinstance(call.func, cst.Attribute) and is_name(call.func.value, name) and call.func.attr.value == "type":
            return "torch.Tensor"
    compared = _compared_with(script, symbolic, name)
    if compared:
        return compared
    returned = [node.value for node in script.walk(cst.Return, symbolic.body) if node.value is not None]
    # A helper that symbolic returns is called with a value first, as in all its uses that convert.
    returned += [call.args[0].value for call in returned if isinstance(call, cst.Call) and call.args]
    return "torch.Tensor" if any(is_name(value, name) for value in returned) else ""


def _compared_with(script: Script, symbolic: cst.FunctionDef, name: str) -> str:
    """Return the type of the number or string with which a parameter is compared; empty if there is none."""
    for comparison in script.walk(cst.Comparison, symbolic.body):
        if is_name(comparison.left, name):
            try:
                return _kind(script.value(comparison.comparisons[0].comparator)).replace("None", "")
            except ValueError:
                continue
    return ""


def is_object(script: Script, symbolic: cst.FunctionDef, name: str) -> bool:
    """Return whether the symbolic function reads attributes of an argument, so that it is an object."""
    owners = [node.value for node in script.walk(cst.Attribute, symbolic.body) if node.attr.value not in _ASKED]
    for node in script.walk(cst.Subscript, symbolic.body):
        index = node.slice[0].slice
        if isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString):
            owners.append(node.value)
    return any(is_name(owner, name) for owner in owners)


_ASKED = {
    "type", "node", "isCompleteTensor", "mustBeNone", "debugName", "setDebugName", "setType", "setTypeAs", "append",
    "index", "count", "lower", "upper", "startswith", "endswith", "format", "encode",
}  # fmt: skip
"""The methods of graph values, lists and strings."""


def _spread(script: Script, symbolic: cst.FunctionDef, graph: str) -> set[str]:
    """Return the names in lists that are the inputs of a node: ``inputs = [x, y]``, ``g.op("Op", *inputs)``."""
    calls = [call for call in script.walk(cst.Call, symbolic.body) if isinstance(call.func, cst.Attribute)]
    starred = {
        script.code(argument.value)
        for call in calls
        if isinstance(call.func, cst.Attribute) and is_name(call.func.value, graph)
        for argument in call.args
        if argument.star == "*"
    }
    found: set[str] = set()
    for assign in script.walk(cst.Assign, symbolic.body):
        if script.code(assign.targets[0].target) in starred:
            lists: list[cst.List | cst.Tuple] = [*script.walk(cst.List, assign), *script.walk(cst.Tuple, assign)]
            found |= {script.code(element.value) for node in lists for element in node.elements}
    for call in script.walk(cst.Call, symbolic.body):
        appended = isinstance(call.func, cst.Attribute) and call.func.attr.value == "append" and len(call.args) == 1
        if appended and script.code(call.func.value) in starred:  # type: ignore[attr-defined]
            found.add(script.code(call.args[0].value))
    return found


def _names(script: Script, node: cst.CSTNode) -> set[str]:
    return {found.value for found in script.walk(cst.Name, node)}


def count_results(script: Script, *functions: cst.FunctionDef) -> int:
    """Return the number of results of a Function, the maximum found in ``forward`` and the symbolic function."""
    most = 1
    for function in functions:
        outputs = {}
        for assign in script.walk(cst.Assign, function):
            if isinstance(assign.value, cst.Call) and len(assign.targets) == 1:
                target = assign.targets[0].target
                if isinstance(target, cst.Name):
                    outputs[target.value] = _outputs(script, assign.value)
        for node in script.walk(cst.Return, function):
            value = node.value
            if isinstance(value, cst.Tuple):
                most = max(most, len(value.elements))
            elif isinstance(value, cst.Call):
                most = max(most, _outputs(script, value))
            elif isinstance(value, cst.Name):
                most = max(most, outputs.get(value.value, 1))
    return most


def _outputs(script: Script, call: cst.Call) -> int:
    for argument in call.args:
        if argument.keyword is not None and argument.keyword.value == "outputs":
            try:
                return int(script.value(argument.value))
            except ValueError as error:
                raise NotConvertible("the number of its results depends on an argument", call) from error
    return 1
