"""A hash of a model's weights, so that a bundle is compared only with the model it was made from."""

from __future__ import annotations

import hashlib

import torch

__all__ = ["weights_hash"]


def weights_hash(program: torch.export.ExportedProgram) -> str:
    """sha256 over the names, dtypes, shapes and bytes of the program's parameters, buffers and constants."""
    digest = hashlib.sha256()
    constants = {name: value for name, value in program.constants.items() if isinstance(value, torch.Tensor)}
    for name, value in sorted({**program.state_dict, **constants}.items()):
        tensor = value.detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        digest.update(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()
