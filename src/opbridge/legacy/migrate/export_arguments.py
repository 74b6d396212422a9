"""Replaces old arguments of ``torch.onnx.export`` by their successors."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import libcst as cst

from opbridge.legacy.migrate.script import EQUAL, Edit, Left, Script

__all__ = ["EXPORTS", "find"]

EXPORTS = ("torch.onnx.export", "torch.onnx._export", "torch.onnx.utils.export", "torch.onnx.utils._export")
"""The names of the exporter."""

_POSITIONAL = ("model", "args", "f", "export_params", "verbose", "training", "input_names", "output_names")
_GONE = {
    "aten": "it has no effect any more",
    "custom_opsets": "a custom domain's version is 1",
    "do_constant_folding": "constants are always folded",
    "dynamo": "there is one exporter",
    "enable_onnx_checker": "the model is always checked",
    "example_outputs": "shapes are inferred by capturing the model",
    "export_params": "weights are always exported",
    "export_raw_ir": "it has no effect any more",
    "operator_export_type": "an operator without a mapping is an error; declare a mapping",
    "retain_param_name": "names of weights are always kept",
    "_retain_param_name": "names of weights are always kept",
    "strip_doc_string": "nodes carry their source as metadata",
    "training": "call model.eval() before the export",
    "onnx_shape_inference": "shapes are always inferred",
}
_LOWEST_OPSET = 18
_AUTOMATIC_NAME = re.compile(r"\d+|\w+\.\d+|onnx::\w+")


def find(script: Script) -> Iterator[Edit | Left]:
    """Find the calls of an exporter."""
    for call in script.walk(cst.Call):
        if script.path(call.func) in EXPORTS:
            yield from _of_call(script, call)


def _of_call(script: Script, call: cst.Call) -> Iterator[Edit | Left]:
    if any(argument.star for argument in call.args):
        yield Left(script.line(call), "torch.onnx.export", "it is called with starred arguments.")
        return
    arguments: dict[str, cst.Arg] = {}
    for position, argument in enumerate(call.args):
        if argument.keyword is not None:
            arguments[argument.keyword.value] = argument
        elif position < len(_POSITIONAL):
            arguments[_POSITIONAL[position]] = argument
        else:
            yield Left(script.line(call), "torch.onnx.export", "it has too many positional arguments.")
            return
    changes: dict[str, Any] = {}
    for name, argument in arguments.items():
        yield from _argument(script, name, argument, arguments, changes)

    def replace(updated: cst.Call) -> cst.Call:
        return _rewritten(updated, list(arguments), changes)

    if script.path(call.func) != "torch.onnx.export":
        changes["f"] = changes.get("f", {})
        yield Edit(call, _to_export, script.line(call), script.code(call.func), "torch.onnx.export")
    if changes or _custom(script):
        yield Edit(call, replace, script.line(call), "torch.onnx.export")
    names = [] if "input_names" in arguments else _fed_by_old_names(script)
    if names:
        value = f"input_names={names!r}"
        yield Edit(call, functools.partial(_with, value), script.line(call), "torch.onnx.export", value)
    if _custom(script):
        table = "custom_translation_table=opbridge.translation_table()"
        yield Edit(
            call, functools.partial(_with, table), script.line(call), "torch.onnx.export", table.partition("=")[0]
        )


def _argument(
    script: Script, name: str, argument: cst.Arg, arguments: dict[str, cst.Arg], changes: dict[str, Any]
) -> Iterator[Edit | Left]:
    """Record the change of one argument in ``changes``: None removes it, a dict has its new keyword and value."""
    line = script.line(argument)
    if name == "export_params" and not _is(script, argument, True):
        changes[name] = {"keyword": name}
    elif name == "custom_opsets" and not _is_version_1(script, argument):
        yield Left(line, name, "torch writes version 1 for every custom domain; set other versions in the file.")
    elif name in _GONE:
        changes[name] = None
        yield Edit(argument, _same, line, name, f"removed: {_GONE[name]}")
    elif name == "use_external_data_format":
        changes[name] = {"keyword": "external_data"}
        yield Edit(argument, _same, line, name, "external_data")
    elif name == "opset_version":
        try:
            opset = script.value(argument.value)
        except ValueError:
            at_least = [cst.Arg(cst.Integer(str(_LOWEST_OPSET))), cst.Arg(argument.value)]
            changes[name] = {"value": cst.Call(cst.Name("max"), at_least)}
            detail = f"at least {_LOWEST_OPSET}, the exporter's lowest; opbridge.convert_opset converts to older ones"
            yield Edit(argument, _same, line, name, detail)
            return
        if isinstance(opset, int) and opset < _LOWEST_OPSET:
            changes[name] = {"value": cst.Integer(str(_LOWEST_OPSET))}
            detail = f"{_LOWEST_OPSET}, the exporter's lowest; opbridge.convert_opset converts the model to {opset}"
            yield Edit(argument, _same, line, name, detail)
    elif name == "dynamic_axes":
        shapes = _dynamic_shapes(script, argument, arguments.get("input_names"))
        if shapes is None:
            yield Left(line, name, "write dynamic_shapes, which uses the parameters of forward instead of input names.")
        else:
            changes[name] = {"keyword": "dynamic_shapes", "value": cst.parse_expression(shapes)}
            yield Edit(argument, _same, line, name, "dynamic_shapes")


def _is(script: Script, argument: cst.Arg, value: Any) -> bool:
    try:
        return bool(script.value(argument.value) is value)
    except ValueError:
        return False


def _is_version_1(script: Script, argument: cst.Arg) -> bool:
    try:
        versions = script.value(argument.value)
    except ValueError:
        return False
    return versions is None or (isinstance(versions, dict) and set(versions.values()) <= {1})


def _same(updated: Any) -> Any:
    return updated


def _to_export(updated: cst.Call) -> cst.Call:
    return updated.with_changes(func=cst.parse_expression("torch.onnx.export"))


def _custom(script: Script) -> bool:
    """Return whether a part of the script became a translation."""
    return "opbridge" in script.needs


def _fed_by_old_names(script: Script) -> list[str]:
    """The names by which the script feeds a session, if they are those that the old exporter made up: "0", "x.1"."""
    fed = [
        [str(script.value(element.key)) for element in argument.value.elements if isinstance(element, cst.DictElement)]
        for call in script.walk(cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "run"
        for argument in call.args
        if isinstance(argument.value, cst.Dict) and _has_literal_keys(argument.value)
    ]
    return fed[0] if len(fed) == 1 and all(_AUTOMATIC_NAME.fullmatch(name) for name in fed[0]) else []


def _has_literal_keys(node: cst.Dict) -> bool:
    return all(isinstance(item, cst.DictElement) and isinstance(item.key, cst.SimpleString) for item in node.elements)


def _with(keyword: str, updated: cst.Call) -> cst.Call:
    """The call with one more keyword argument, such as ``input_names=['0']``."""
    name, _, value = keyword.partition("=")
    added = cst.Arg(cst.parse_expression(value), cst.Name(name), equal=EQUAL)
    last = updated.args[-1]
    between = next((item.comma for item in updated.args if isinstance(item.comma, cst.Comma)), _COMMA)
    trailing = last.comma
    first = last.with_changes(comma=between, whitespace_after_arg=cst.SimpleWhitespace(""))
    added = added.with_changes(comma=trailing, whitespace_after_arg=last.whitespace_after_arg)
    return updated.with_changes(args=[*updated.args[:-1], first, added])


_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _rewritten(call: cst.Call, names: list[str], changes: dict[str, Any]) -> cst.Call:
    kept = []
    shifted = False
    for position, (name, argument) in enumerate(zip(names, call.args, strict=True)):
        change = changes.get(name, {})
        if change is None:
            shifted = shifted or argument.keyword is None
            continue
        keyword = change.get("keyword") or (argument.keyword.value if argument.keyword is not None else None)
        if keyword is None and (shifted or position > 2):
            keyword = name  # The current exporter takes the arguments after f by keyword only.
        if keyword is not None:
            argument = argument.with_changes(keyword=cst.Name(keyword), equal=EQUAL)
        kept.append(argument.with_changes(value=change.get("value", argument.value)))
    if kept and call.args:
        last = call.args[-1]
        kept[-1] = kept[-1].with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    return call.with_changes(args=kept)


def _dynamic_shapes(script: Script, axes: cst.Arg, names: cst.Arg | None) -> str | None:
    """Return ``dynamic_axes`` as one entry per input; None if the values are not known before the script runs."""
    try:
        by_name = script.value(axes.value)
        order = script.value(names.value) if names is not None else None
    except ValueError:
        return None
    if not isinstance(by_name, dict) or not isinstance(order, list):
        return None
    shapes = []
    for name in order:
        dims = by_name.get(name, {})
        if isinstance(dims, list):
            dims = {dim: f"{name}_{dim}" for dim in dims}
        inside = ", ".join(f'{dim}: "{label}"' for dim, label in dims.items())
        shapes.append(f"{{{inside}}}")
    return f"({', '.join(shapes)}{',' if len(shapes) == 1 else ''})"
