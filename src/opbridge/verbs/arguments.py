"""Converts the arguments of the public verbs to engines, entries, ONNX models and declarations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbridge.capture.entry import Entry, load_entry
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.kernel_choice import AUTO, Kernels
from opbridge.catalog.declare.nan import ABSENT, Nan
from opbridge.catalog.declare.spec import declared_specs
from opbridge.engines.base import Engine
from opbridge.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.capture.assumption import Assume
    from opbridge.catalog.declare.catalog import Ops
    from opbridge.engines.versions import Versions
    from opbridge.verbs.onnx_entry import OnnxEntry

__all__ = [
    "catalog_of",
    "declared_catalog",
    "is_onnx",
    "opened",
    "quiet",
]


def quiet(stage: str) -> None:
    """The default of ``progress``, which reports nothing."""


def opened(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    *,
    text: str | None = None,
    engines: Sequence[Engine],
    requested: Versions,
    state: bool = False,
    assume: bool | str = False,
) -> Entry | OnnxEntry:
    """The model with its inputs as one value, checked against the engines and the requested versions.

    The parameters are those of :func:`opbridge.export`; ``text`` is its ``entry``.

    Raises:
        InputError: The arguments are inconsistent.
    """
    from opbridge.engines.versions import check_versions

    if not is_onnx(model):
        check_versions(engines, requested)
        entry = _resolved_entry(model, args, kwargs, dynamic_shapes, input_names, output_names, text=text)
        return dataclasses.replace(entry, state=state or entry.state, assume=_assume(assume))
    from opbridge.verbs.onnx_entry import load_onnx

    _refuse_torch_options(
        text or (str(model) if isinstance(model, str | Path) else "the model"),
        dynamic_shapes=dynamic_shapes,
        input_names=input_names,
        output_names=output_names,
        state=state or None,
        assume=assume or None,
    )
    loaded = load_onnx(model, args, kwargs)
    _refuse_torch_engines(engines)
    check_versions(engines, requested, own_opset=loaded.opset)
    return loaded


def _assume(value: bool | str) -> Assume:
    if value in (True, False, "check"):
        return value  # type: ignore[return-value]
    raise InputError(f"assume={value!r} is not valid: it can be True or 'check'.", fix="pass assume=True.")


def _refuse_torch_engines(engines: Sequence[Engine]) -> None:
    """Raise InputError if an engine can't load ONNX models."""
    for engine in engines:
        if engine.accepts != "onnx":
            raise InputError(
                f"{engine.name} takes PyTorch programs, and the model is an ONNX model.",
                fix=f"export the PyTorch model for it: opbridge export file.py:model -o FOLDER --engine {engine.name}",
            )


def is_onnx(model: Any) -> bool:
    """Whether this is an ONNX model or the path of one, rather than a PyTorch model."""
    if isinstance(model, str | Path):
        return str(model).endswith((".onnx", ".onnx.pb"))
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(model).__mro__}
    return not kinds.isdisjoint(("onnx.ModelProto", "onnx_ir.Model"))


def _refuse_torch_options(model: str, **options: Any) -> None:
    """Raise InputError for options, given by name, that do not apply to an ONNX model."""
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"{name} is for PyTorch models, and {model} is an ONNX model, with names and dimensions of its own.",
                fix=f"leave {name} out, or change the model first.",
            )


def catalog_of(entry: Entry | OnnxEntry, ops: Ops, nan: Nan = ABSENT, kernels: Kernels = AUTO) -> Catalog:
    """The catalog for a model, with the user's declarations and choices."""
    catalog = Catalog.load(ops, nan) if isinstance(entry, Entry) else declared_catalog(ops, entry.model)
    return dataclasses.replace(catalog, kernels=kernels)


def declared_catalog(ops: Ops, model: ir.Model) -> Catalog:
    """The catalog for an ONNX model; empty without declarations, because an ONNX model needs no mappings."""
    from opbridge.vision.old_nodes import declare_for

    declare_for(model)
    return Catalog.load(ops) if ops or declared_specs() else Catalog((), ())


def _resolved_entry(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    *,
    text: str | None = None,
) -> Entry:
    """The model with its inputs as one value, loaded if ``model`` is the text of an entry."""
    if isinstance(model, str | Path):
        loaded = load_entry(str(model))
        return dataclasses.replace(
            loaded,
            dynamic_shapes=dynamic_shapes if dynamic_shapes is not None else loaded.dynamic_shapes,
            input_names=input_names or loaded.input_names,
            output_names=output_names or loaded.output_names,
        )
    # A single tensor is iterable, so it must stay whole here; capture wraps it.
    return Entry(text or "", model, args, dict(kwargs or {}), dynamic_shapes, input_names, output_names)  # type: ignore[arg-type]
