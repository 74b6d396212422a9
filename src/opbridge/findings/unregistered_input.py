"""An example input is an object of a class that is not registered with torch.

What it means: torch supports tensors, numbers, strings, None, and tuples, lists, dicts and registered classes of them.

Why it is a problem: the tensors inside the object become inputs of the graph, so torch must be able to find them.

Example::

    @dataclasses.dataclass
    class Batch:
        image: Tensor
    opbridge.export(model, (Batch(x),), path="out")

Fix: ``torch.export.register_dataclass(Batch)``, or pass the tensors themselves.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from opbridge.errors import InputError
from opbridge.findings.base import Failure, Finding

CODE = "unregistered-input"
ERROR = InputError

_PLAIN = (bool, int, float, complex, str, type(None))


def explain(failure: Failure) -> Finding | None:
    """Recognized by torch's message; the cause is the first input of an unregistered type."""
    without_names = re.search(r"Did not find a flatten_with_keys_fn for type: <class '([^']+)'>", failure.text)
    if without_names:
        name = without_names[1].rpartition(".")[2]
        message = f"An input of forward is a {name}, which is registered with torch without the names of its parts."
        return failure.finding(CODE, name, message, "pass flatten_with_keys_fn to register_pytree_node.")
    if "Unsupported input type" not in failure.text:
        return None
    for name, value in failure.inputs():
        culprit = _unknown(value)
        if culprit is not None:
            message = f"The input {name!r} of forward contains a {culprit.__qualname__}, unknown to torch."
            return failure.finding(CODE, name, message, f"{registration(culprit)}, or pass the tensors in it instead.")
    return None


def registration(kind: type) -> str:
    """An instruction to register ``kind`` with torch."""
    if dataclasses.is_dataclass(kind):
        return f"call torch.export.register_dataclass({kind.__qualname__}) before the export"
    return f"make {kind.__qualname__} a dataclass and call torch.export.register_dataclass({kind.__qualname__})"


def _unknown(value: Any) -> type | None:
    import torch

    for leaf in torch.utils._pytree.tree_leaves(value):
        if not isinstance(leaf, (torch.Tensor, torch.ScriptObject, torch.dtype, torch.device, *_PLAIN)):
            return type(leaf)
    return None
