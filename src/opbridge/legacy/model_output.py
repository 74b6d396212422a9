"""The last steps of an export: the requested opset, and the file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir
import torch

from opbridge.engines.versions import SYMBOLIC
from opbridge.errors import InputError, TranslationError
from opbridge.legacy import switch
from opbridge.legacy.old_arguments import Request
from opbridge.onnx_model import opsets
from opbridge.torch_graph import internals as torch_internals

__all__ = ["finish", "write"]

_STANDARD = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
"""The domains whose operators are not the user's."""


def finish(model: ir.Model, request: Request) -> ir.Model:
    """Convert the model to the requested opset, and set the versions of custom domains.

    Nodes that a symbolic function wrote for this opset stay as they are.

    Raises:
        TranslationError: A node can't be expressed at this opset.
    """
    opset = max(request.opset_version or torch_internals.default_opset(), opsets.OLDEST_OPSET)
    if model.opset_imports.get("") != opset:
        converted = opsets.convert_opset(
            model, opset, kept=lambda node: node.metadata_props.get(SYMBOLIC) == str(opset)
        )
        if converted.unexpressed:
            item = converted.unexpressed[0]
            raise TranslationError(
                f"{item.operator} can't be expressed at opset {opset}: {item.reason} (node {item.node}).",
                fix="export with a newer opset_version, or register a symbolic function that does not need this node.",
            )
        model = converted.model
    for domain, version in (request.custom_opsets or {}).items():
        if domain in model.opset_imports:
            model.opset_imports[domain] = version
    return model


def write(program: torch.onnx.ONNXProgram, f: Any, request: Request) -> None:
    """Write the model to a path or an open file; do nothing if ``f`` is None.

    Raises:
        InputError: The file can't be written.
    """
    if request.verbose:
        print(program)
    if f is None:
        return
    options = {
        "include_initializers": request.export_params,
        "keep_initializers_as_inputs": request.keep_initializers_as_inputs,
    }
    if hasattr(f, "write"):
        buffer = io.BytesIO()
        program.save(buffer, **options, external_data=False)  # type: ignore[arg-type]
        f.write(buffer.getvalue())
        return
    try:
        program.save(f, **options, external_data=request.external_data)
    except OSError as error:
        raise InputError(
            f"torch.onnx.export: {f} can't be written: {error.strerror or error}.", fix="pass another path."
        ) from error
    for operator in dict.fromkeys(_without_body(program.model)):
        switch.note_node(str(f), operator)


def _without_body(model: ir.Model) -> Iterator[str]:
    """The custom operators of a model that are no functions."""
    for node in model.graph.all_nodes():
        if node.domain not in _STANDARD and node.op_identifier() not in model.functions:
            yield f"{node.domain}::{node.op_type}"
