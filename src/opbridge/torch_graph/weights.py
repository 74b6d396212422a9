"""A hash of a program's weights, which shows whether a bundle was made from a given model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["has_other_weights", "hashed_weights"]

_LITERAL = "lifted_tensor_"
"""The prefix that torch gives to constants that are not attributes of a module: ``torch.tensor(0.5)`` in a forward."""

_DIGITS = 16


def hashed_weights(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """The hashes of a program's weights, as stored in a manifest.

    Returns:
        "weights": the SHA-256 of the names, dtypes, shapes and bytes of all parameters. "state": the first digits of
        such a hash for each buffer and each other tensor attribute. Literals are part of the code and are not hashed.
    """
    parameters = set(program.graph_signature.parameters)
    constants = {name: value for name, value in program.constants.items() if isinstance(value, torch.Tensor)}
    weights, state = hashlib.sha256(), {}
    for name, value in sorted({**program.state_dict, **constants}.items()):
        if name in parameters:
            _update(weights, name, value)
        elif not name.rpartition(".")[2].startswith(_LITERAL):
            digest = hashlib.sha256()
            _update(digest, name, value)
            state[name] = digest.hexdigest()[:_DIGITS]
    return {"weights": weights.hexdigest(), "state": state}


def has_other_weights(program: torch.export.ExportedProgram, recorded: Mapping[str, Any]) -> bool:
    """Whether a program's weights differ from those recorded in a manifest.

    A buffer or attribute that only one of the two has is ignored: a forward pass may have created it.
    """
    if recorded.get("weights") is None:
        return False
    found = hashed_weights(program)
    others: Mapping[str, str] = recorded.get("state", {})
    return bool(
        found["weights"] != recorded["weights"]
        or any(digest != found["state"].get(name, digest) for name, digest in others.items())
    )


def _update(digest: Any, name: str, value: torch.Tensor) -> None:
    if hasattr(value, "__tensor_flatten__"):
        # A weight of torchao consists of integers and scales, and its class has few operators.
        for part in value.__tensor_flatten__()[0]:
            _update(digest, f"{name}.{part}", getattr(value, part))
        return
    tensor = value.detach().cpu().contiguous()
    digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
    digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
