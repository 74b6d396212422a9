"""Arguments of a Function that are one object in all its calls: the operator uses the object, and does not take it."""

from __future__ import annotations

import libcst as cst

from opbridge.legacy.migrate.old_function import OldFunction
from opbridge.legacy.migrate.script import Script

__all__ = ["fixed_arguments", "may_return_an_argument", "without_positions"]


def fixed_arguments(script: Script, function: OldFunction, types: list[str]) -> dict[int, str]:
    """Return the expression of each argument of unknown type that is the same object in all calls, by position.

    Args:
        script: The script.
        function: The Function.
        types: The types of the parameters; "" for an unknown type.
    """
    calls = function.calls
    stored = any(not any(use is call.func for call in calls) for use in function.uses)
    if stored or not calls or function.starred or function.packed is not None:
        return {}
    if any(item.star or item.keyword for call in calls for item in call.args):
        return {}
    found = {}
    for position, kind in enumerate(types):
        given = [call.args[position].value for call in calls if position < len(call.args)]
        texts = {script.code(value) for value in given}
        if not kind and len(given) == len(calls) and len(texts) == 1 and _is_one_object(script, given[0]):
            found[position] = texts.pop()
    return found


def _is_one_object(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether an expression means the same wherever it stands in the script."""
    if isinstance(value, cst.Name):
        return value.value in ("None", "True", "False") or script.is_global(value)
    if isinstance(value, cst.Attribute):  # An attribute of an object of the script may change.
        return script.is_imported(value)
    if isinstance(value, cst.List | cst.Tuple):
        return all(_is_one_object(script, item.value) for item in value.elements)
    if isinstance(value, cst.Dict):
        items = [item for item in value.elements if isinstance(item, cst.DictElement)]
        return len(items) == len(value.elements) and all(_is_one_object(script, item.value) for item in items)
    return isinstance(value, cst.SimpleString | cst.Integer | cst.Float)


def without_positions(call: cst.Call, positions: dict[int, str]) -> cst.Call:
    """Return a call without the arguments at these positions."""
    kept = [item for position, item in enumerate(call.args) if position not in positions]
    if kept:
        kept[-1] = kept[-1].with_changes(comma=call.args[-1].comma)
    return call.with_changes(args=kept)


_VIEWS = ("contiguous", "detach", "expand", "permute", "reshape", "squeeze", "transpose", "unsqueeze", "view")


def _viewed(value: cst.BaseExpression | None) -> cst.BaseExpression | None:
    """Return the tensor of which an expression is a view, or the expression itself."""
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value in _VIEWS:
        return value.func.value
    return value


def may_return_an_argument(script: Script, function: cst.FunctionDef) -> bool:
    """Return whether a function returns one of its parameters itself, which an operator must not do."""
    names = {item.name.value for item in function.params.params}
    for node in script.walk(cst.Return, function):
        value = node.value
        values = [value.body, value.orelse] if isinstance(value, cst.IfExp) else [value]
        viewed = [_viewed(item) for item in values]
        if any(isinstance(item, cst.Name) and item.value in names for item in viewed):
            return True
        called = script.functions.get(script.code(value.func)) if isinstance(value, cst.Call) else None
        if called is not None and called is not function and may_return_an_argument(script, called):
            return True
    return False
