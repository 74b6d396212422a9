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

from opbridge import torch_internals
from opbridge.errors import TranslationError
from opbridge.findings.base import first_line
from opbridge.legacy import switch
from opbridge.legacy.old_arguments import Request

__all__ = ["export_scripted"]

_NEWEST_OPSET = 17
"""Of the TorchScript exporter's mappings, the last that were kept up; newer models are converted from there."""


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
        TranslationError: The TorchScript exporter fails, or the model can't be expressed at the opset.
    """
    import onnx_ir as ir

    from opbridge.legacy.exporter import finish, write

    opset = request.opset_version or torch_internals.default_opset()
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            original(
                model,
                args,
                buffer,
                dynamo=False,
                kwargs=request.kwargs,
                opset_version=min(opset, _NEWEST_OPSET),
                input_names=request.input_names,
                output_names=request.output_names,
                dynamic_axes=request.dynamic_axes,
                custom_opsets=request.custom_opsets,
                do_constant_folding=request.do_constant_folding,
                training=getattr(torch.onnx.TrainingMode, request.training),
                operator_export_type=getattr(torch.onnx.OperatorExportTypes, request.operator_export_type),
            )
    except Exception as error:
        raise TranslationError(
            f"torch's TorchScript exporter can't export the {type(model).__name__}: {first_line(error)}",
            fix="export the nn.Module that it was made from, which torch.export captures.",
            details=str(error),
        ) from error
    switch.note("old exporter", str(getattr(model, "original_name", getattr(model, "name", type(model).__name__))))
    program = torch.onnx.ONNXProgram(finish(ir.from_proto(_loaded(buffer)), request), None)
    write(program, f, request)
    return program


def _loaded(buffer: io.BytesIO) -> Any:
    import onnx

    return onnx.load_from_string(buffer.getvalue())
