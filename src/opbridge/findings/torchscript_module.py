"""The model is a TorchScript module that has no counterpart in Python.

What it means: the model, or a part of it, comes from ``torch.jit.script``, ``torch.jit.trace`` or ``torch.jit.load``.

Why it is a problem: ``torch.export`` captures a model by running its Python code, and a TorchScript module has none.
opbridge writes that code from the graph of the module, but not for classes that are written in C++, nor for modules
that have several methods instead of ``forward``.

Example::

    opbridge.export(torch.jit.script(nn.LSTM(3, 4)), (x,), path="out")

Fix: pass the ``nn.Module`` from which the TorchScript module was made. If it is not available, write an .onnx file with
``torch.onnx.export`` under ``opbridge.legacy.enable()`` and pass that file.
"""

from __future__ import annotations

from typing import Any

from opbridge.findings.base import Failure, Finding

CODE = "torchscript-module"


def explain(failure: Failure) -> Finding | None:
    """Recognized by the type of the model or of one of its submodules."""
    import torch

    if not isinstance(failure.model, torch.nn.Module):
        return None
    scripted = [
        (name, part) for name, part in failure.model.named_modules() if isinstance(part, torch.jit.ScriptModule)
    ]
    if not scripted:
        return None
    name, part = scripted[0]
    alone = " of the submodule alone" if name else ""
    what = f"The submodule {name!r} of the model" if name else "The model"
    return failure.finding(
        CODE,
        name or _original_name(part),
        f"{what} is a TorchScript module ({_original_name(part)}), which has no Python code to capture.",
        f"use the nn.Module from which torch.jit.script or torch.jit.trace made it "
        f"({_original_name(part)}), and load the weights with load_state_dict(scripted.state_dict()). If it is not "
        f"available, write an .onnx file{alone} with torch.onnx.export under opbridge.legacy.enable(), and pass that "
        "file.",
    )


def _original_name(module: Any) -> str:
    return str(getattr(module, "original_name", type(module).__name__))
