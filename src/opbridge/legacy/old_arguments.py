"""The keyword arguments that ``torch.onnx.export`` had over the years, as those it has now."""

from __future__ import annotations

import dataclasses
import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opbridge.errors import InputError
from opbridge.legacy import switch

__all__ = ["Request", "read_arguments"]

_POSITIONAL = ("export_params", "verbose", "training", "input_names", "output_names")
"""What could follow ``f`` without its name, in every version that took it so."""


@dataclasses.dataclass
class Request:
    """An export as it is asked for now.

    Attributes:
        export_params: Whether the file holds the weights.
        verbose: Whether the model is printed.
        training: ``"EVAL"``, ``"TRAINING"`` or ``"PRESERVE"``.
        operator_export_type: By name.
        unmapped: Arguments that only torch's own exporter has, with their values.
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
            f"torch.onnx.export: {argument} is {name!r}, and can be {', '.join(names)}.", fix="give one of these."
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
    """For an argument whose meaning is gone, or always in force."""


_OLD: dict[str, tuple[Callable[[Request, Any], None], str]] = {
    "aten": (_old_type("ONNX_ATEN"), "use a mapping for each operator (opbridge.translation)"),
    "autograd_inlining": (_read_nothing, "drop it, the symbolic of the autograd.Function decides"),
    "custom_opsets": (_read_opsets, "honoured"),
    "do_constant_folding": (_read_folding, "use optimize"),
    "dynamic_axes": (_read_axes, "use dynamic_shapes"),
    "enable_onnx_checker": (_read_nothing, "use onnx.checker.check_model on the file"),
    "example_outputs": (_read_nothing, "drop it, the outputs are computed"),
    "export_modules_as_functions": (_read_nothing, "use @opbridge.operator for what is to be one function"),
    "export_raw_ir": (_read_nothing, "use torch.export.export"),
    "operator_export_type": (_read_export_type, "use a mapping for each operator (opbridge.translation)"),
    "_retain_param_name": (_read_nothing, "drop it, parameters keep their names"),
    "strip_doc_string": (_read_nothing, "drop it, the model has no doc strings"),
    "training": (_read_training, "use model.eval() before the export"),
    "use_external_data_format": (_read_external, "use external_data"),
}
"""Per old argument: how it is read, and its successor."""

_TORCHS_OWN = ("artifacts_dir", "dump_exported_program", "fallback", "optimize", "profile", "report", "verify")


def read_arguments(positional: Sequence[Any], options: Mapping[str, Any], *, stacklevel: int = 4) -> Request:
    """What the arguments after ``f`` ask for; one warning names the successors of all old ones among them.

    Raises:
        InputError: There are too many, or one is unknown or given twice.
    """
    given = dict(options)
    if len(positional) > len(_POSITIONAL):
        raise InputError(
            f"torch.onnx.export got {len(positional) + 3} arguments without a name; only "
            f"{', '.join(('model', 'args', 'f', *_POSITIONAL))} may come without one.",
            fix="write the others with their names.",
        )
    for name, value in zip(_POSITIONAL, positional, strict=False):
        if name in given:
            raise InputError(f"torch.onnx.export got {name!r} twice.", fix="give it once, with its name.")
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
                f"torch.onnx.export has, and had, no argument {name!r}.", fix="check its spelling, or leave it out."
            )
    _check_kinds(request)
    _warn(old, [name for name in given if name in _OLD], request, stacklevel)
    return request


_KINDS: dict[str, tuple[type, str]] = {
    "opset_version": (numbers.Integral, "a number"),
    "dynamic_axes": (Mapping, "a dict of the axes by the names of inputs and outputs"),
    "custom_opsets": (Mapping, "a dict of the versions by domain"),
    "input_names": (Sequence, "a list of names"),
    "output_names": (Sequence, "a list of names"),
}


def _check_kinds(request: Request) -> None:
    for name, (kind, words) in _KINDS.items():
        value = getattr(request, name)
        if value is not None and (isinstance(value, str) or not isinstance(value, kind)):
            raise InputError(
                f"torch.onnx.export: {name} is {value!r}, and should be {words}.", fix=f"give {words}, or leave it out."
            )


def _warn(positional: Sequence[str], named: Sequence[str], request: Request, stacklevel: int) -> None:
    lines = [f"{name}: {_OLD[name][1]}" for name in named]
    lines += [f"{name}: give it by name" for name in positional]
    if request.training != "EVAL":
        lines.append("the model is exported as it is in evaluation mode")
    lines += [
        f"{name}: it has no meaning here; opbridge.export verifies and reports"
        for name, value in request.unmapped.items()
        if value not in (None, False, "", ".") and name != "optimize"
    ]
    if request.unmapped.get("optimize") is False:
        lines.append("optimize: torch's optimizer runs all the same, and leaves what a symbolic built as it is")
    for name in (*named, *positional):
        switch.note("old argument", name)
    if lines:
        warnings.warn("torch.onnx.export has old arguments. " + "; ".join(lines) + ".", FutureWarning, stacklevel)
