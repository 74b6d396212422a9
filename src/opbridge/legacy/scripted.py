"""Traced and scripted modules, which torch.export can't capture because they have no Python code.

torch's TorchScript exporter exports them. It keeps their control flow and honours registered symbolic functions. The
model is then converted to the requested opset.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import torch

from opbridge.errors import InputError, TranslationError, described_error
from opbridge.legacy import switch, torch_registry
from opbridge.legacy.model_output import finish, write
from opbridge.legacy.old_arguments import Request
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.sources import source_of_stack

__all__ = ["export_scripted"]

_NEWEST_OPSET = 17
"""The newest opset for which torch maintains the TorchScript exporter; the model is converted from it."""

_LAST_OPSET = 20
"""The newest opset that the TorchScript exporter writes."""


def export_scripted(
    original: Callable[..., Any], model: Any, args: Any, f: Any, request: Request
) -> torch.onnx.ONNXProgram:
    """Export a TorchScript module or function.

    Args:
        original: torch's own ``torch.onnx.export``.
        model: The result of ``torch.jit.trace`` or ``torch.jit.script``.
        args: The example inputs.
        f: The path or open file to write the model to; None to write no file.
        request: The other arguments of the call.

    Raises:
        InputError: The TorchScript exporter does not have one of the arguments.
        TranslationError: The TorchScript exporter fails, or the model can't be expressed at the opset.
    """
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
            fix="export the original nn.Module, which torch.export captures.",
            details=str(error),
        ) from error
    name = str(getattr(model, "original_name", getattr(model, "name", type(model).__name__)))
    switch.note("TorchScript module", name, str(source_of_stack() or ""))
    program = torch.onnx.ONNXProgram(
        finish(ir.from_proto(onnx.load_model_from_string(buffer.getvalue())), request), None
    )
    write(program, f, request)
    return program


def _old_arguments(request: Request) -> dict[str, Any]:
    """Return the request as arguments of the TorchScript exporter."""
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
                f"torch.onnx.export: {name} can't be used with a {type(model).__name__}, which torch's TorchScript "
                "exporter exports.",
                fix=f"use {instead}; or export the original nn.Module.",
            )


def _opset_of_mappings(opset: int) -> int:
    """Return the newest maintained opset, or a newer one for which the user registered a symbolic function."""
    versions = (version for functions in torch_registry.registered().values() for version in functions)
    return min(opset, max([_NEWEST_OPSET, *(version for version in versions if version <= _LAST_OPSET)]))
