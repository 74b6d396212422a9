"""Padding with elements of the tensor, in modes or cases that ONNX Pad or an engine does not support."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnxscript import opset19 as op
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.catalog.declare.spec import decomposition, rewrite, translation
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes
from opbridge.torch_graph.padded_sizes import simplified_padding

_WHY = "engines crop before they pad, and do not support an empty batch"


def _by_places(x: Tensor, padding: Sequence[int], place: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Pad axis by axis, the last one first; ``place`` maps a position outside to an element."""
    for number in range(len(padding) // 2):
        before, after = padding[2 * number], padding[2 * number + 1]
        if isinstance(before, int) and isinstance(after, int) and before == after == 0:
            continue
        axis = x.dim() - 1 - number
        wanted = torch.arange(x.shape[axis] + before + after) - before
        x = x.index_select(axis, place(wanted, x.shape[axis]))
    return x


@decomposition("aten::_pad_circular")
def gone_round(self: Tensor, pad: Sequence[int]) -> Tensor:
    """Circular padding axis by axis, for engines without ONNX's mode wrap; PyTorch wraps around at most once.

    _pad_circular(Tensor self, SymInt[] pad) -> Tensor

    If a negative padding crops an axis, only the remaining elements wrap around.
    """
    x = _cropped(self, pad)
    padding = [max(amount, 0) for amount in pad]
    for number in range(len(padding) // 2):
        before, after = padding[2 * number], padding[2 * number + 1]
        axis = x.dim() - 1 - number
        x = torch.cat([x.narrow(axis, x.shape[axis] - before, before), x, x.narrow(axis, 0, after)], axis)
    return x


def _cropped(x: Tensor, padding: Sequence[int]) -> Tensor:
    """The tensor without what the negative amounts cut off."""
    crop = [min(amount, 0) for amount in padding]
    is_kept = all(isinstance(amount, int) and amount == 0 for amount in crop)
    return x if is_kept else torch.ops.aten.constant_pad_nd(x, crop, 0.0)  # type: ignore[no-any-return]


def _padded(x: Tensor, padding: Sequence[int], mode: str, place: Callable[[Tensor, int], Tensor]) -> Any:
    """Padding in a mode of ONNX's Pad; an empty tensor is padded by places.

    Negative amounts cut afterwards, as in PyTorch, if the padding could read what they cut off.
    """
    if any(isinstance(size, int) and size == 0 for size in x.shape):
        return _by_places(x, padding, place)
    sides = list(zip(reversed(x.shape), padding[::2], padding[1::2], strict=False))
    if all(_reads_what_stays(*side) for side in sides):
        return NotImplemented
    outside = [max(amount, 0) for amount in padding]
    is_padded = any(not isinstance(amount, int) or amount for amount in outside)
    return _cropped(_by_mode(x, outside, mode) if is_padded else x, padding)


def _reads_what_stays(size: Any, before: Any, after: Any) -> bool:
    """Whether no padding, not even a reflection, reads elements that a negative amount on the other side cuts off."""
    amounts = [amount for amount in (before, after) if isinstance(amount, int)]
    if not any(amount < 0 for amount in amounts):
        return True
    return len(amounts) == 2 and statically_known_true(max(amounts) < size + min(amounts))


def _by_mode(x: Tensor, padding: Sequence[int], mode: str) -> Tensor:
    result: Tensor = getattr(torch.ops.aten, f"{mode}_pad{len(padding) // 2}d")(x, padding)
    return result


def _replicated(x: Tensor, padding: Sequence[int]) -> Any:
    return _padded(x, padding, "replication", lambda wanted, length: wanted.clamp_min(0).clamp_max(length - 1))


def _mirrored(x: Tensor, padding: Sequence[int]) -> Any:
    return _padded(x, padding, "reflection", lambda wanted, length: length - 1 - (length - 1 - wanted.abs()).abs())


@decomposition("aten::replication_pad1d", overrides=_WHY)
def replication_pad1d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """Padding with the outer elements of the last axis.

    replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor
    """
    return _replicated(self, padding)


@decomposition("aten::replication_pad2d", overrides=_WHY)
def replication_pad2d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """Padding with the outer elements of the last two axes.

    replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor
    """
    return _replicated(self, padding)


@decomposition("aten::replication_pad3d", overrides=_WHY)
def replication_pad3d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """Padding with the outer elements of the last three axes.

    replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor
    """
    return _replicated(self, padding)


@decomposition("aten::reflection_pad1d", overrides=_WHY)
def reflection_pad1d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """Padding of the last axis by reflection at its outer elements.

    reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor
    """
    return _mirrored(self, padding)


@decomposition("aten::reflection_pad2d", overrides=_WHY)
def reflection_pad2d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """Padding of the last two axes by reflection at their outer elements.

    reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor
    """
    return _mirrored(self, padding)


@decomposition("aten::reflection_pad3d", overrides=_WHY)
def reflection_pad3d(self: Tensor, padding: Sequence[int]) -> Tensor:
    """Padding of the last three axes by reflection at their outer elements.

    reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor
    """
    return _mirrored(self, padding)


@decomposition("aten::pad", overrides="ONNX Pad has the mode wrap only from opset 19 on")
def pad(self: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Padding in the mode constant, reflect, replicate or circular.

    pad(Tensor self, SymInt[] pad, str mode="constant", float? value=None) -> Tensor
    """
    if mode == "circular":
        has_elements = all(not isinstance(size, int) or size for size in self.shape)
        is_wrapped = has_elements and all(isinstance(amount, int) and amount >= 0 for amount in pad)
        return torch.ops.aten._pad_circular(self, pad) if is_wrapped else gone_round(self, pad)  # type: ignore[no-any-return]
    if mode == "constant":
        return torch.ops.aten.constant_pad_nd(self, pad, 0.0 if value is None else value)
    return _by_mode(self, pad, {"reflect": "reflection", "replicate": "replication"}[mode])


@decomposition("aten::constant_pad_nd", overrides="torch's mapping writes a Pad node that adds nothing")
def constant_pad_nd(self: Tensor, pad: Sequence[int], value: float = 0) -> Any:
    """Padding by nothing on every side.

    constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor
    """
    return self.clone() if all(isinstance(amount, int) and amount == 0 for amount in pad) else NotImplemented


@translation("aten::_pad_circular.default", opset=19)
def wrapped(self: Any, pad: Sequence[int]) -> Any:
    """Circular padding by amounts that are not negative.

    _pad_circular(Tensor self, SymInt[] pad) -> Tensor
    """
    kept = [0] * (len(self.shape) - len(pad) // 2)
    amounts = [*kept, *pad[-2::-2], *kept, *pad[-1::-2]]
    return op.Pad(self, op.Constant(value_ints=amounts), mode="wrap")


@rewrite("torch.nn.functional.pad")
def pad_of_dynamic_sizes(
    original: Callable[..., Tensor],
    input: Tensor,
    pad: Sequence[int],
    mode: str = "constant",
    value: float | None = None,
) -> Any:
    """Padding with dynamic sizes.

    Circular padding is made of parts, because torch's function makes the sizes constant. Padding to a multiple of a
    number is written so that torch simplifies the size of the result. A dynamic ``value``, which torch's function makes
    constant, is put in place afterwards.
    """
    if mode == "circular":
        is_fixed = have_fixed_sizes(input) or all(isinstance(amount, int) and amount >= 0 for amount in pad)
        return NotImplemented if is_fixed else gone_round(input, pad)
    sizes = [size for size in reversed(input.shape) for _ in range(2)]
    simpler = [simplified_padding(size, amount) for size, amount in zip(sizes, pad, strict=False)]
    if mode == "constant" and isinstance(value, torch.SymInt | torch.SymFloat):
        # torch compares a number that depends on data with 0.
        is_inside = original(torch.ones_like(input, dtype=torch.bool), simpler)
        return torch.where(is_inside, original(input, simpler), torch.scalar_tensor(value, dtype=input.dtype))
    is_simpler = any(new is not old for new, old in zip(simpler, pad, strict=True))
    return original(input, simpler, mode, value) if is_simpler else NotImplemented
