"""Traced and scripted modules: torch.export runs Python code, and they have none.

They go through torch's TorchScript exporter, which keeps their control flow and honours registered symbolics by itself;
the model that comes out is taken to the opset that was asked for.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import torch

from opbridge.errors import InputError, TranslationError, described_error
from opbridge.legacy import switch, torch_registry
from opbridge.legacy.old_arguments import Request
from opbridge.torch_graph import internals as torch_internals

__all__ = ["export_scripted"]

_NEWEST_OPSET = 17
"""Of the TorchScript exporter's mappings, the last that were kept up; newer models are converted from there."""

_LAST_OPSET = 20
"""The last that the TorchScript exporter writes."""


def export_scripted(
    original: Callable[..., Any], model: Any, args: Any, f: Any, request: Request
) -> torch.onnx.ONNXProgram:
    """Export a TorchScript module or function.

    Args:
        original: ``torch.onnx.export`` as torch has it.
        model: From ``torch.jit.trace`` or ``torch.jit.script``.
        args: The example inputs.
        f: Where to write the model.
        request: What the other arguments ask for.

    Raises:
        InputError: An argument is given that the TorchScript exporter does not have.
        TranslationError: The TorchScript exporter fails, or the model can't be expressed at the opset.
    """
    import onnx_ir as ir

    from opbridge.legacy.exporter import finish, write

    _refuse_new_arguments(model, request)
    opset = request.opset_version or torch_internals.default_opset()
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            original(model, args, buffer, opset_version=_opset_of_mappings(opset), **_old_arguments(request))
    except Exception as error:
        raise TranslationError(
            f"torch's TorchScript exporter can't export the {type(model).__name__}: {described_error(error, 200)}",
            fix="export the nn.Module that it was made from, which torch.export captures.",
            details=str(error),
        ) from error
    switch.note("old exporter", str(getattr(model, "original_name", getattr(model, "name", type(model).__name__))))
    program = torch.onnx.ONNXProgram(finish(ir.from_proto(_loaded(buffer)), request), None)
    write(program, f, request)
    return program


def _old_arguments(request: Request) -> dict[str, Any]:
    """The request as arguments of the TorchScript exporter."""
    names = ("kwargs", "input_names", "output_names", "dynamic_axes", "custom_opsets", "do_constant_folding")
    return {
        **{name: getattr(request, name) for name in names},
        "dynamo": False,
        "training": getattr(torch.onnx.TrainingMode, request.training),
        "operator_export_type": getattr(torch.onnx.OperatorExportTypes, request.operator_export_type),
    }


def _refuse_new_arguments(model: Any, request: Request) -> None:
    successors = {
        "dynamic_shapes": "dynamic_axes, by the names in input_names",
        "custom_translation_table": "torch.onnx.register_custom_op_symbolic",
    }
    for name, instead in successors.items():
        if getattr(request, name):
            raise InputError(
                f"torch.onnx.export: {name} does not count for a {type(model).__name__}, which goes through torch's "
                "TorchScript exporter.",
                fix=f"use {instead}; or export the nn.Module that it was made from.",
            )


def _opset_of_mappings(opset: int) -> int:
    """The newest opset that torch kept up, or a newer one for which the user registered a symbolic function."""
    versions = (version for functions in torch_registry.registered().values() for version in functions)
    return min(opset, max([_NEWEST_OPSET, *(version for version in versions if version <= _LAST_OPSET)]))


def _loaded(buffer: io.BytesIO) -> Any:
    import onnx

    return onnx.load_from_string(buffer.getvalue())
