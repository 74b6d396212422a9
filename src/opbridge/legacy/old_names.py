"""Operators that have different names in TorchScript's tracer and in torch.export.

A symbolic function that is registered for the name of the tracer is called for the captured operator, with the
arguments that the tracer would have recorded. The table results from a comparison of traced and captured graphs of 120
functions of ``torch`` and ``torch.nn.functional``; all other functions have the same name in both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["OLD_NAMES", "OldName"]


@dataclasses.dataclass(frozen=True)
class OldName:
    """A captured operator that has another name in a traced graph.

    Attributes:
        captured: The target in the captured graph.
        arguments: A function that converts the arguments of the captured operator, in schema order, to those of the
            traced operator.
        reason: Why the two names differ.
    """

    captured: str
    arguments: Callable[[Sequence[Any]], list[Any]]
    reason: str


def _each(value: Any, count: int) -> list[Any]:
    """Return one number per spatial dimension; a single number applies to all of them."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * count if len(values) == 1 else values


def _backend() -> list[bool]:
    """Return the last arguments of ``_convolution``, which are the settings of cuDNN."""
    cudnn = torch.backends.cudnn
    return [cudnn.benchmark, cudnn.deterministic, cudnn.enabled, cudnn.allow_tf32]


def _convolution(rank: int) -> Callable[[Sequence[Any]], list[Any]]:
    def arguments(given: Sequence[Any]) -> list[Any]:
        value, weight, bias, stride, padding, dilation, groups = given
        sizes = [_each(stride, rank), _each(padding, rank), _each(dilation, rank)]
        return [value, weight, bias, *sizes, False, [0] * rank, groups, *_backend()]

    return arguments


def _transposed(rank: int) -> Callable[[Sequence[Any]], list[Any]]:
    def arguments(given: Sequence[Any]) -> list[Any]:
        value, weight, bias, stride, padding, output_padding, groups, dilation = given
        sizes = [_each(stride, rank), _each(padding, rank), _each(dilation, rank)]
        return [value, weight, bias, *sizes, True, _each(output_padding, rank), groups, *_backend()]

    return arguments


def _padded_by_name(rank: int) -> Callable[[Sequence[Any]], list[Any]]:
    def arguments(given: Sequence[Any]) -> list[Any]:
        value, weight, bias, stride, padding, dilation, groups = given
        return [value, weight, bias, _each(stride, rank), padding, _each(dilation, rank), groups]

    return arguments


_COMPOSITE = "the tracer records the operator that the function calls, and torch.export the function itself"

OLD_NAMES: dict[str, tuple[OldName, ...]] = {
    "aten::_convolution": (
        *(OldName(f"aten::conv{rank}d.default", _convolution(rank), _COMPOSITE) for rank in (1, 2, 3)),
        OldName("aten::conv_transpose1d.default", _transposed(1), _COMPOSITE),
        OldName("aten::conv_transpose2d.input", _transposed(2), _COMPOSITE),
        OldName("aten::conv_transpose3d.input", _transposed(3), _COMPOSITE),
    ),
    "aten::_convolution_mode": tuple(
        OldName(f"aten::conv{rank}d.padding", _padded_by_name(rank), _COMPOSITE) for rank in (1, 2, 3)
    ),
    "aten::size": (OldName("aten::sym_size.int", list, "the size of a dynamic dimension is a symbol when captured"),),
    "aten::numel": (
        OldName("aten::sym_numel.default", list, "the number of elements of a dynamic shape is a symbol when captured"),
    ),
}
"""The captured operators, by the name in the tracer."""
