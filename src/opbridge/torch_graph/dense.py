"""Dense weights in the place of sparse ones and of those in a library's layout; nested tensors are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from opbridge.errors import InputError

__all__ = ["dense_weights", "refuse_nested"]


@contextlib.contextmanager
def dense_weights(module: torch.nn.Module) -> Iterator[None]:
    """Replace sparse (COO, CSR, ...) and mkldnn parameters, buffers and attributes by dense ones inside the block.

    An ONNX graph computes with dense tensors, and torch.export does not trace through other layouts.
    """
    replaced: list[tuple[dict[str, Any], str, torch.Tensor]] = []
    tensors: dict[str, Any]
    for part in module.modules():
        for tensors in (part._parameters, part._buffers, vars(part)):
            for name, tensor in tensors.items():
                if isinstance(tensor, torch.Tensor) and (tensor.layout != torch.strided or tensor.is_mkldnn):
                    replaced.append((tensors, name, tensor))
    try:
        for tensors, name, tensor in replaced:
            dense = tensor.detach().to_dense()
            tensors[name] = torch.nn.Parameter(dense, False) if isinstance(tensor, torch.nn.Parameter) else dense
        yield
    finally:
        for tensors, name, tensor in replaced:
            tensors[name] = tensor


def refuse_nested(values: Any) -> None:
    """Raise InputError if one of the example inputs is a nested tensor."""
    if any(isinstance(leaf, torch.Tensor) and leaf.is_nested for leaf in torch.utils._pytree.tree_leaves(values)):
        raise InputError(
            "An example input is a nested tensor, and ONNX has no tensors whose rows have different lengths.",
            fix="pass x.to_padded_tensor(0.0) and the rows' lengths, and let the model mask what lies beyond them.",
        )
