"""An example input is an object of a class that torch can't look into.

What it means: torch takes tensors, numbers, strings, None, and tuples, lists, dicts and registered classes of them.

Why it is a problem: the tensors inside become the inputs of the graph, so torch has to find them.

Example::

    @dataclasses.dataclass
    class Batch:
        image: Tensor
    opbridge.export(model, (Batch(x),), path="out")

Fix: ``torch.export.register_dataclass(Batch)``, or pass the tensors themselves.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from opbridge.errors import InputError
from opbridge.findings.base import Failure, Finding

CODE = "unregistered-input"
ERROR = InputError

_PLAIN = (bool, int, float, complex, str, type(None))


def explain(failure: Failure) -> Finding | None:
    """Recognised by torch's own message, then by looking for the first input of an unknown type."""
    if "Unsupported input type" not in failure.text:
        return None
    for name, value in failure.inputs():
        culprit = _unknown(value)
        if culprit is not None:
            message = f"The input {name!r} of forward holds a {culprit.__qualname__}, which torch can't look into."
            return failure.finding(CODE, name, message, f"{registration(culprit)}, or pass the tensors in it instead.")
    return None


def registration(kind: type) -> str:
    """How to make torch look into objects of ``kind``, as an instruction."""
    if dataclasses.is_dataclass(kind):
        return f"call torch.export.register_dataclass({kind.__qualname__}) before the export"
    return f"make {kind.__qualname__} a dataclass and call torch.export.register_dataclass({kind.__qualname__})"


def _unknown(value: Any) -> type | None:
    import torch

    for leaf in torch.utils._pytree.tree_leaves(value):
        if not isinstance(leaf, (torch.Tensor, torch.ScriptObject, torch.dtype, torch.device, *_PLAIN)):
            return type(leaf)
    return None
