"""The ``torch.onnx.export`` of the bridge: torch's exporter with the old declarations honoured."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from opbridge.capture.capture import Captured, as_module, capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.spec import OpSpec
from opbridge.engines.versions import forget_origins
from opbridge.errors import InputError, UnsupportedOperatorError
from opbridge.ladder.plan import Plan, plan
from opbridge.ladder.translate import translate
from opbridge.legacy import switch
from opbridge.legacy.dynamic_axes import axis_names, label_dimensions, shapes_by_argument
from opbridge.legacy.fallthrough import fallthrough_specs
from opbridge.legacy.findings.registration_without_operator import finding
from opbridge.legacy.model_output import finish, write
from opbridge.legacy.old_arguments import Request, read_arguments
from opbridge.legacy.registrations import registrations_without_operator
from opbridge.legacy.scripted import export_scripted
from opbridge.legacy.target import Target, targeting
from opbridge.onnx_model.opsets import NEWEST_OPSET, OLDEST_OPSET
from opbridge.torch_graph import LOWEST_OPSET
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.dimensions import arguments_by_name
from opbridge.torch_graph.signature import user_inputs, user_outputs
from opbridge.torch_graph.targets import target_key

__all__ = ["installed"]


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Replace ``torch.onnx.export`` inside the block."""
    original = torch.onnx.export
    torch.onnx.export = _bridged(original)  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.onnx.export = original


def _bridged(original: Callable[..., Any]) -> Callable[..., Any]:
    def export(model: Any, args: Any = (), f: Any = None, *positional: Any, **options: Any) -> Any:
        """Export a model as ``torch.onnx.export`` does, honouring old declarations, arguments and names."""
        ours = type(model).__module__.startswith("opbridge.") and isinstance(model, torch.export.ExportedProgram)
        exportable = getattr(torch.onnx, "ExportableModule", ())
        if ours or options.get("dynamo") is False or isinstance(model, exportable):
            return original(model, args, f, *positional, **options)
        with switch.exporting():
            request = read_arguments(positional, options)
            _check_opset(request.opset_version)
            if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
                return export_scripted(original, model, args, f, request)
            return _export(model, args, f, request)

    return export


def _export(model: Any, args: Any, f: Any, request: Request) -> torch.onnx.ONNXProgram:
    positional, keywords = _inputs(args, request.kwargs)
    target = Target(
        custom_opsets=dict(request.custom_opsets or {}),
        training=request.training,
        operator_export_type=request.operator_export_type,
        constant_folding=request.do_constant_folding,
    )
    _warn_of_unused_registrations()
    with targeting(target):
        catalog = Catalog.load().extended(_table_specs(request.custom_translation_table or {}))
        captured = _captured(model, positional, keywords, request, catalog)
        planned = _planned(captured, catalog, request)
        onnx_model = translate(planned, captured, requested_opset=request.opset_version).model
    switch.written(onnx_model)
    _write_fixed_sizes(onnx_model)
    _name_parameters(onnx_model, captured, request.input_names or ())
    onnx_model = finish(onnx_model, request)
    forget_origins(onnx_model)
    program = torch.onnx.ONNXProgram(onnx_model, captured.program)
    write(program, f, request)
    return program


def _warn_of_unused_registrations() -> None:
    for registration in registrations_without_operator():
        found = finding(registration.name, registration.source)
        warnings.warn(f"{found.message} Fix: {found.fix}", stacklevel=5)


def _inputs(args: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the keyword inputs; the latter may be a dict at the end of ``args``."""
    positional = (
        (args,) if isinstance(args, torch.Tensor) else tuple(args) if isinstance(args, (tuple, list)) else (args,)
    )
    if (
        not kwargs
        and positional
        and isinstance(positional[-1], dict)
        and all(isinstance(k, str) for k in positional[-1])
    ):
        return positional[:-1], positional[-1]
    return positional, dict(kwargs or {})


def _captured(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], request: Request, catalog: Catalog
) -> Captured:
    module = None if isinstance(model, torch.export.ExportedProgram) else as_module(model)
    shapes, labels = request.dynamic_shapes, None
    names, outputs = request.input_names or (), request.output_names or ()
    if request.dynamic_axes and shapes is None and module is not None:
        shapes, labels = shapes_by_argument(axis_names(request.dynamic_axes), module, args, kwargs, names, outputs)
    captured = capture(model, args, kwargs, dynamic_shapes=shapes, rewrites=catalog.rewrites())
    if labels is not None and module is not None:
        symbols, fixed = label_dimensions(captured.program, labels, arguments_by_name(module, args, kwargs))
        _warn_of_fixed(fixed)
        captured = dataclasses.replace(captured, dimension_names=symbols)
    return dataclasses.replace(
        captured,
        input_names=_first_named(names, captured.input_names, len(user_inputs(captured.program))),
        output_names=_first_named(outputs, captured.output_names, len(user_outputs(captured.program))),
    )


def _first_named(given: Sequence[str], own: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the given names and, if there are too few, the model's own; the old exporter accepted any number."""
    return (*given[:count], *(name for name in own[len(given) :]))


def _warn_of_fixed(fixed: Sequence[str]) -> None:
    if fixed:
        warnings.warn(f"dynamic_axes: these dimensions are static in the model: {', '.join(fixed)}.", stacklevel=5)


def _table_specs(table: Mapping[Any, Callable[..., Any]]) -> tuple[OpSpec, ...]:
    return tuple(
        OpSpec(target_key(operator), "translate", function, source="custom_translation_table")
        for operator, function in table.items()
        if isinstance(operator, torch._ops.OpOverload)
    )


def _planned(captured: Captured, catalog: Catalog, request: Request) -> Plan:
    wanted = request.opset_version or torch_internals.default_opset()
    options: dict[str, Any] = {"opset": max(wanted, LOWEST_OPSET), "rewrites": captured.rewrites}
    options["inlined"] = request.operator_export_type == "ONNX"
    catalog = catalog.extended(captured.declared)
    planned = plan(captured.program, catalog, **options)
    kept = fallthrough_specs(planned.missing, request.operator_export_type)
    if kept:
        planned = plan(captured.program, catalog.extended(kept), **options)
    if planned.missing:
        lines = [
            f"  {item.target.removesuffix('.default')}: {item.reason}"
            + (f" (at {', '.join(item.sources[:3])})" if item.sources else "")
            for item in planned.missing
        ]
        first = planned.missing[0].target.removesuffix(".default")
        raise UnsupportedOperatorError(
            "These operators have no mapping to ONNX:\n" + "\n".join(lines),
            fix=f"declare a mapping for each: torch.onnx.register_custom_op_symbolic({first!r}, ...), "
            f"@opbridge.translation({first!r}) or @opbridge.decomposition({first!r}).",
            targets=[item.target for item in planned.missing],
        )
    return planned


def _write_fixed_sizes(model: ir.Model) -> None:
    """Write static sizes as numbers; torch writes a size that became static as if it were a name."""
    values = [*model.graph.inputs, *(value for node in model.graph.all_nodes() for value in node.outputs)]
    for value in values:
        if value.shape is not None:
            sizes = [int(size.value) if str(getattr(size, "value", "")).isdigit() else size for size in value.shape]
            value.shape = ir.Shape(sizes)


def _name_parameters(model: ir.Model, captured: Captured, names: Sequence[str]) -> None:
    """Give the names that are left after the inputs to the parameters, in order, as the old exporter did."""
    parameters = captured.program.graph_signature.parameters
    for name, parameter in zip(names[len(captured.input_names) :], parameters, strict=False):
        initializer = model.graph.initializers.pop(parameter, None)
        if initializer is not None:
            initializer.name = name
            model.graph.initializers[name] = initializer


def _check_opset(asked: int | None) -> None:
    if asked is not None and asked > NEWEST_OPSET:
        raise InputError(
            f"opset_version={asked}: the newest opset of the installed onnx is {NEWEST_OPSET}.",
            fix=f"pass an opset from {OLDEST_OPSET} to {NEWEST_OPSET}, or remove the argument.",
        )
    if asked is not None and asked < OLDEST_OPSET:
        text = f"opset_version={asked}: the oldest supported opset is {OLDEST_OPSET}, which the model now has."
        warnings.warn(text, stacklevel=3)
