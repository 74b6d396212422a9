"""Converts the arguments of all older versions of ``torch.onnx.export`` to the current ones."""

from __future__ import annotations

import dataclasses
import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opbridge.errors import InputError
from opbridge.legacy import switch
from opbridge.torch_graph.sources import source_of_stack

__all__ = ["Request", "read_arguments"]

_POSITIONAL = ("export_params", "verbose", "training", "input_names", "output_names")
"""The parameters after ``f`` that could be passed by position in older versions."""


@dataclasses.dataclass
class Request:
    """The arguments of a call of ``torch.onnx.export``, by their current names.

    Attributes:
        export_params: Whether the file contains the weights.
        verbose: Whether the model is printed.
        training: The training mode, ``"EVAL"``, ``"TRAINING"`` or ``"PRESERVE"``.
        operator_export_type: The name of a member of ``torch.onnx.OperatorExportTypes``.
        unmapped: The arguments that only torch's own exporter supports, with their values.
    """

    kwargs: Mapping[str, Any] | None = None
    export_params: bool = True
    verbose: bool | None = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    opset_version: int | None = None
    external_data: bool = True
    dynamic_shapes: Any = None
    dynamic_axes: Mapping[str, Any] | None = None
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None
    custom_opsets: Mapping[str, int] | None = None
    keep_initializers_as_inputs: bool = False
    training: str = "EVAL"
    operator_export_type: str = "ONNX"
    do_constant_folding: bool = True
    unmapped: dict[str, Any] = dataclasses.field(default_factory=dict)


def _name(value: Any) -> str:
    return str(getattr(value, "name", value)).rpartition(".")[2]


def _old_type(name: str) -> Callable[[Request, Any], None]:
    def read(request: Request, value: Any) -> None:
        if value:
            request.operator_export_type = name

    return read


def _read_training(request: Request, value: Any) -> None:
    name = {"None": "EVAL", "False": "EVAL", "True": "TRAINING"}.get(str(value), _name(value))
    request.training = _one_of("training", name, ("EVAL", "TRAINING", "PRESERVE"))


def _read_export_type(request: Request, value: Any) -> None:
    names = ("ONNX", "ONNX_ATEN", "ONNX_ATEN_FALLBACK", "ONNX_FALLTHROUGH")
    request.operator_export_type = "ONNX" if value is None else _one_of("operator_export_type", _name(value), names)


def _one_of(argument: str, name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise InputError(
            f"torch.onnx.export: {argument} is {name!r}, not one of {', '.join(names)}.",
            fix="pass one of them.",
        )
    return name


def _read_folding(request: Request, value: Any) -> None:
    request.do_constant_folding = value is not False


def _read_external(request: Request, value: Any) -> None:
    request.external_data = bool(value)


def _read_opsets(request: Request, value: Any) -> None:
    request.custom_opsets = value


def _read_axes(request: Request, value: Any) -> None:
    request.dynamic_axes = value


def _read_nothing(request: Request, value: Any) -> None:
    """Ignore an argument that has no effect any more, or whose effect is now the default."""


_OLD: dict[str, tuple[Callable[[Request, Any], None], str]] = {
    "aten": (_old_type("ONNX_ATEN"), "use a mapping for each operator (opbridge.translation)"),
    "autograd_inlining": (_read_nothing, "remove it; the symbolic of the autograd.Function is used"),
    "custom_opsets": (_read_opsets, "it is honoured"),
    "do_constant_folding": (_read_folding, "use optimize"),
    "dynamic_axes": (_read_axes, "use dynamic_shapes"),
    "enable_onnx_checker": (_read_nothing, "use onnx.checker.check_model on the file"),
    "example_outputs": (_read_nothing, "remove it; the outputs are computed"),
    "export_modules_as_functions": (_read_nothing, "use @opbridge.operator for code that must become one function"),
    "export_raw_ir": (_read_nothing, "use torch.export.export"),
    "operator_export_type": (
        _read_export_type,
        "it is honoured for operators without a mapping, except for ONNX_ATEN; opbridge.translation declares one",
    ),
    "_retain_param_name": (_read_nothing, "remove it; parameters keep their names"),
    "strip_doc_string": (_read_nothing, "remove it; the model has no doc strings"),
    "training": (_read_training, "use model.eval() before the export"),
    "use_external_data_format": (_read_external, "use external_data"),
}
"""For each old argument, the function that reads it and the advice of the warning."""

_TORCHS_OWN = ("artifacts_dir", "dump_exported_program", "fallback", "optimize", "profile", "report", "verify")


def read_arguments(positional: Sequence[Any], options: Mapping[str, Any], *, stacklevel: int = 4) -> Request:
    """Read the arguments after ``f``. A single warning names the successors of all old arguments.

    Raises:
        InputError: There are too many positional arguments, or an argument is unknown, repeated or of a wrong type.
    """
    given = dict(options)
    if len(positional) > len(_POSITIONAL):
        raise InputError(
            f"torch.onnx.export got {len(positional) + 3} positional arguments; only "
            f"{', '.join(('model', 'args', 'f', *_POSITIONAL))} can be passed by position.",
            fix="pass the others by keyword.",
        )
    for name, value in zip(_POSITIONAL, positional, strict=False):
        if name in given:
            raise InputError(f"torch.onnx.export got {name!r} twice.", fix="pass it once, by keyword.")
        given[name] = value
    request = Request()
    known = {field.name for field in dataclasses.fields(Request)} - {"unmapped"}
    old: list[str] = [name for name in _POSITIONAL[: len(positional)] if name not in _OLD]
    for name, value in given.items():
        if name in _OLD:
            _OLD[name][0](request, value)
        elif name in known:
            if value is not None:
                setattr(request, name, value)
        elif name in _TORCHS_OWN:
            request.unmapped[name] = value
        elif name != "dynamo":
            raise InputError(
                f"No version of torch.onnx.export has an argument {name!r}.", fix="correct its spelling, or remove it."
            )
    _check_kinds(request)
    _warn(old, [name for name in given if name in _OLD], request, stacklevel)
    return request


_KINDS: dict[str, tuple[type, str]] = {
    "opset_version": (numbers.Integral, "a number"),
    "dynamic_axes": (Mapping, "a dict from names of inputs and outputs to axes"),
    "custom_opsets": (Mapping, "a dict from domains to versions"),
    "input_names": (Sequence, "a list of names"),
    "output_names": (Sequence, "a list of names"),
}


def _check_kinds(request: Request) -> None:
    for name, (kind, words) in _KINDS.items():
        value = getattr(request, name)
        if value is not None and (isinstance(value, str) or not isinstance(value, kind)):
            raise InputError(
                f"torch.onnx.export: {name} is {value!r}, but must be {words}.", fix=f"pass {words}, or remove it."
            )


def _warn(positional: Sequence[str], named: Sequence[str], request: Request, stacklevel: int) -> None:
    lines = [f"{name}: {_OLD[name][1]}" for name in named]
    lines += [f"{name}: pass it by keyword" for name in positional]
    if request.training != "EVAL":
        lines.append("the model is exported in evaluation mode")
    lines += [
        f"{name}: it has no effect here; opbridge.export verifies and reports"
        for name, value in request.unmapped.items()
        if value not in (None, False, "", ".") and name != "optimize"
    ]
    if request.unmapped.get("optimize") is False:
        lines.append("optimize: torch's optimizer runs anyway, and does not change the nodes of symbolic functions")
    source = str(source_of_stack() or "") if named or positional else ""
    for name in (*named, *positional):
        switch.note("old argument", name, source)
    if lines:
        warnings.warn("torch.onnx.export has old arguments. " + "; ".join(lines) + ".", FutureWarning, stacklevel)
