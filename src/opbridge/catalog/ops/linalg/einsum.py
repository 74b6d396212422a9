"""``einsum`` of integers, and over the axes of an ellipsis."""

from __future__ import annotations

import string
from collections.abc import Sequence

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition

_WHY = "torch's mapping sums integers in their own dtype, PyTorch in int64; ONNX does not sum over an ellipsis"


@decomposition("aten::einsum", overrides=_WHY)
def einsum(equation: str, tensors: Sequence[Tensor], *, path: Sequence[int] | None = None) -> Tensor:
    """The sum of products over the labels that the result lacks.

    einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor

    The sum of a single integer tensor is in int64. The axes of an ellipsis get labels where they are summed. All others
    are left to torch's mapping.
    """
    given, arrow, asked = equation.replace(" ", "").partition("->")
    if arrow and "..." in given and "..." not in asked:
        return torch.einsum(f"{_labelled(given, [tensor.dim() for tensor in tensors])}->{asked}", *tensors)
    tensor = tensors[0]
    if len(tensors) > 1 or tensor.dtype == torch.int64 or tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return NotImplemented
    kept = set(asked) if arrow else {label for label in given if label == "." or given.count(label) == 1}
    return torch.einsum(equation, tensor.long()) if set(given) - kept else NotImplemented


def _labelled(given: str, ranks: Sequence[int]) -> str:
    """The operands' labels with unused letters for each ellipsis: the same ones, counted from the last axis."""
    free = [letter for letter in string.ascii_letters if letter not in given]
    operands = []
    for operand, rank in zip(given.split(","), ranks, strict=True):
        count = rank - len(operand.replace("...", ""))
        operands.append(operand.replace("...", "".join(reversed(free[:count]))))
    return ",".join(operands)
