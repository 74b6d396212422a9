"""Padding with elements of the tensor itself, where ONNX Pad has no such mode or an engine no such case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes

_WHY = "engines refuse to pad by what is left when a negative padding cuts, and to pad an empty batch"


def _by_places(x: Tensor, padding: Sequence[int], place: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Axis by axis, the last first: ``place`` says which element stands at a place outside."""
    for number in range(len(padding) // 2):
        before, after = padding[2 * number], padding[2 * number + 1]
        if isinstance(before, int) and isinstance(after, int) and before == after == 0:
            continue
        axis = x.dim() - 1 - number
        wanted = torch.arange(x.shape[axis] + before + after) - before
        x = x.index_select(axis, place(wanted, x.shape[axis]))
    return x


def _gone_round(x: Tensor, padding: Sequence[int]) -> Tensor:
    """Axis by axis, what is at its other end; PyTorch goes round no more than once.

    What is left after a negative padding has cut goes round, not what was there before.
    """
    x = torch.ops.aten.constant_pad_nd(x, [min(amount, 0) for amount in padding], 0.0)
    padding = [max(amount, 0) for amount in padding]
    for number in range(len(padding) // 2):
        before, after = padding[2 * number], padding[2 * number + 1]
        axis = x.dim() - 1 - number
        x = torch.cat([x.narrow(axis, x.shape[axis] - before, before), x, x.narrow(axis, 0, after)], axis)
    return x


def _is_plain(x: Tensor, padding: Sequence[int]) -> bool:
    """Whether ONNX Pad serves: nothing is cut, and there is something to pad."""
    is_cut = any(isinstance(amount, int) and amount < 0 for amount in padding)
    return not is_cut and not any(isinstance(size, int) and size == 0 for size in x.shape)


def _replicated(x: Tensor, padding: Sequence[int]) -> Any:
    if _is_plain(x, padding):
        return NotImplemented
    return _by_places(x, padding, lambda wanted, length: wanted.clamp_min(0).clamp_max(length - 1))


def _mirrored(x: Tensor, padding: Sequence[int]) -> Any:
    if _is_plain(x, padding):
        return NotImplemented
    return _by_places(x, padding, lambda wanted, length: length - 1 - (length - 1 - wanted.abs()).abs())


@decomposition("aten::replication_pad1d", overrides=_WHY)
def replication_pad1d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """The outer elements of the last axis repeated.

    replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor
    """
    return _replicated(self, padding)


@decomposition("aten::replication_pad2d", overrides=_WHY)
def replication_pad2d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """The outer elements of the last two axes repeated.

    replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor
    """
    return _replicated(self, padding)


@decomposition("aten::replication_pad3d", overrides=_WHY)
def replication_pad3d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """The outer elements of the last three axes repeated.

    replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor
    """
    return _replicated(self, padding)


@decomposition("aten::reflection_pad1d", overrides=_WHY)
def reflection_pad1d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """The last axis mirrored at its outer elements.

    reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor
    """
    return _mirrored(self, padding)


@decomposition("aten::reflection_pad2d", overrides=_WHY)
def reflection_pad2d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """The last two axes mirrored at their outer elements.

    reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor
    """
    return _mirrored(self, padding)


@decomposition("aten::reflection_pad3d", overrides=_WHY)
def reflection_pad3d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """The last three axes mirrored at their outer elements.

    reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor
    """
    return _mirrored(self, padding)


@decomposition("aten::pad", overrides="ONNX Pad has the mode wrap from opset 19 on only, and engines refuse it")
def pad(self: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Any of the modes constant, reflect, replicate and circular.

    pad(Tensor self, SymInt[] pad, str mode="constant", float? value=None) -> Tensor
    """
    if mode == "circular":
        return _gone_round(self, pad)
    if mode == "constant":
        return torch.ops.aten.constant_pad_nd(self, pad, 0.0 if value is None else value)
    kind = {"reflect": "reflection", "replicate": "replication"}[mode]
    return getattr(torch.ops.aten, f"{kind}_pad{len(pad) // 2}d")(self, pad)


@rewrite("torch.nn.functional.pad")
def circular_pad_of_dynamic_sizes(
    original: Callable[..., Tensor],
    input: Tensor,
    pad: Sequence[int],
    mode: str = "constant",
    value: float | None = None,
) -> Any:
    """Go round what a negative padding has cut, where torch loses a dynamic size on the way."""
    is_fixed = have_fixed_sizes(input)
    if mode != "circular" or is_fixed or all(isinstance(amount, int) and amount >= 0 for amount in pad):
        return NotImplemented
    return _gone_round(input, pad)
