"""What else checks an export: torch.onnx.verification and numpy.allclose, on the bundles of benchmarks/proof.py.

Both compare on the example inputs: that is how they are used. A bundle's kernels are loaded.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
from torch.onnx.verification import verify_onnx_program

import opbridge
from opbridge.bundle.bundle import Bundle
from opbridge.capture.capture import capture
from opbridge.capture.entry import Entry
from opbridge.catalog.declare.operator import without_kernels
from opbridge.errors import OpbridgeError
from opbridge.proof.verify.inputs import to_numpy, to_torch
from opbridge.proof.verify.special import special_feeds
from opbridge.proof.verify.verification import DEFAULT_SEED

__all__ = ["passes_allclose", "passes_torch_verification"]

TORCH_ABSOLUTE, TORCH_RELATIVE = 5e-3, 1e-1
"""From which differences on torch.onnx.export(verify=True) warns; the function itself gives no verdict."""


def passes_torch_verification(bundle: Bundle, entry: Entry) -> bool:
    """Whether torch.onnx.verification finds no difference that torch.onnx.export(verify=True) would warn of."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    captured = capture(entry.model, entry.args, dynamic_shapes=entry.dynamic_shapes)
    program = torch.onnx.ONNXProgram(ir.load(bundle.model_file("onnxruntime")), captured.program)
    program.initialize_inference_session(lambda model: _session(model, bundle))
    try:
        with without_kernels():
            found = verify_onnx_program(program, entry.args, dict(entry.kwargs))
    except RuntimeError:  # It subtracts results of different shapes.
        return False
    return not any(item.max_abs_diff >= TORCH_ABSOLUTE or item.max_rel_diff >= TORCH_RELATIVE for item in found)


def _session(model: Any, bundle: Bundle) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    kernels = bundle.kernels("onnxruntime")
    if kernels is not None:
        options.register_custom_ops_library(str(bundle.path / kernels["file"]))
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def passes_allclose(bundle: Bundle, entry: Entry, *, special: bool = False) -> bool:
    """Whether every output is numpy.allclose(rtol=1e-3) to the module's.

    Args:
        bundle: The model.
        entry: The module, and its example inputs.
        special: Whether to put opbridge's special values into these; NaN counts as equal to NaN.
    """
    example = {str(number): to_numpy(value) for number, value in enumerate(entry.args)}
    cases = (
        [list(feeds.values()) for _, feeds in special_feeds(example, DEFAULT_SEED)] if special else [example.values()]
    )
    session = opbridge.load(bundle.path)
    return all(_is_close(session, entry.model, list(arrays), entry.args) for arrays in cases)


def _is_close(session: Any, model: torch.nn.Module, arrays: list[np.ndarray], example: tuple[Any, ...]) -> bool:
    arguments = [to_torch(array, like) for array, like in zip(arrays, example, strict=True)]
    with without_kernels(), torch.no_grad():
        flat, _ = torch.utils._pytree.tree_flatten(model(*arguments))
    expected = [np.asarray(to_numpy(value), np.float64) for value in flat]
    try:
        results = [np.asarray(array, np.float64) for array in session(*arrays)]
    except OpbridgeError:
        return False
    return all(
        one.shape == other.shape and np.allclose(one, other, rtol=1e-3, equal_nan=True)
        for one, other in zip(results, expected, strict=True)
    )
