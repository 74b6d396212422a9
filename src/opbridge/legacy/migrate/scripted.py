"""Exports the module itself where a script exports its TorchScript form, which torch.export does not take."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from opbridge.legacy.migrate.export_arguments import EXPORTS
from opbridge.legacy.migrate.script import Edit, Left, Script

__all__ = ["find"]

_MAKERS = ("torch.jit.script", "torch.jit.trace")


def find(script: Script) -> Iterator[Edit | Left]:
    """Find the calls of an exporter whose model is made by ``torch.jit.script`` or ``torch.jit.trace``."""
    made = _assigned(script)
    for call in script.walk(cst.Call):
        if script.path(call.func) not in EXPORTS or not call.args or call.args[0].star:
            continue
        argument = call.args[0]
        maker = (
            made.get(argument.value.value) if isinstance(argument.value, cst.Name) else _maker(script, argument.value)
        )
        if maker is not None:
            module = maker.args[0].value

            def replace(updated: cst.Arg, module: cst.BaseExpression = module) -> cst.Arg:
                return updated.with_changes(value=module)

            detail = f"{script.code(module)}, the module itself, which torch.export captures"
            yield Edit(argument, replace, script.line(argument), script.code(maker.func), detail)


def _assigned(script: Script) -> dict[str, cst.Call]:
    """The calls whose result is assigned to a name that the script assigns once."""
    found: dict[str, list[cst.BaseExpression]] = {}
    for assignment in script.walk(cst.Assign):
        for target in assignment.targets:
            for name, value in _pairs(target.target, assignment.value):
                found.setdefault(name, []).append(value)
    calls = {name: _maker(script, values[0]) for name, values in found.items() if len(values) == 1}
    return {name: call for name, call in calls.items() if call is not None}


def _pairs(target: cst.BaseExpression, value: cst.BaseExpression) -> Iterator[tuple[str, cst.BaseExpression]]:
    """The assigned names with their values, also of ``a, b = x, y``. Where the value is not known, it is the target."""
    if isinstance(target, cst.Name):
        yield target.value, value
    elif isinstance(target, cst.Tuple):
        values: list[cst.BaseExpression] = [target] * len(target.elements)
        if isinstance(value, cst.Tuple) and len(value.elements) == len(values):
            values = [element.value for element in value.elements]
        for element, part in zip(target.elements, values, strict=True):
            yield from _pairs(element.value, part)


def _maker(script: Script, node: cst.BaseExpression) -> cst.Call | None:
    """The node, if it is a call that makes a TorchScript module of another one."""
    if isinstance(node, cst.Call) and script.path(node.func) in _MAKERS and node.args and not node.args[0].star:
        return node
    return None
