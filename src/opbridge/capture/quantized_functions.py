"""Functions of quantized tensors, while a model is captured with plain tensors in their place.

PyTorch's mean of a quantized tensor is a quantized tensor with the same scale and zero point, and its sigmoid has those
that suit numbers between 0 and 1. The plain tensors that stand for them are rounded in the same places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from opbridge.torch_graph.reuse import quantized_operators

__all__ = ["QuantizedFunctions", "Rounding", "rounding_to"]

Rounding = Callable[[Tensor], Tensor]
"""Rounds numbers to those that a scale, a zero point and a range of integers can stand for."""

_AVERAGES = frozenset(
    {f"{kind}{rank}d" for kind in ("adaptive_avg_pool", "avg_pool") for rank in (1, 2, 3)}
    | {"clamp", "hardtanh", "interpolate", "leaky_relu", "mean", "relu6", "upsample"}
)
_COPIES = frozenset(
    {"__getitem__", "clone", "contiguous", "dropout", "flatten", "max_pool1d", "max_pool2d", "narrow", "permute"}
    | {"relu", "relu_", "reshape", "select", "squeeze", "transpose", "unflatten", "unsqueeze", "view"}
)


def rounding_to(scale: float, zero_point: int, lowest: int, highest: int, dtype: torch.dtype) -> Rounding:
    """What QuantizeLinear and DequantizeLinear make of a number.

    Args:
        scale: The distance of two neighbouring numbers.
        zero_point: The integer that stands for 0.
        lowest: The lowest integer.
        highest: The highest integer.
        dtype: The integers' dtype.
    """
    settings = scale, zero_point, lowest, highest, dtype

    def rounded(x: Tensor) -> Tensor:
        operators = quantized_operators()
        found: Tensor = operators.dequantize_per_tensor(operators.quantize_per_tensor(x, *settings), *settings)
        return found

    return rounded


_OWN_SCALE = {
    "hardsigmoid": rounding_to(1 / 256, 0, 0, 255, torch.uint8),
    "sigmoid": rounding_to(1 / 256, 0, 0, 255, torch.uint8),
    "tanh": rounding_to(2 / 256, 128, 0, 255, torch.uint8),
}


class QuantizedFunctions(TorchFunctionMode):
    """Rounds what functions compute from tensors that stand for quantized ones."""

    def __init__(self) -> None:
        super().__init__()
        self._roundings: Any = WeakTensorKeyDictionary()

    def rounded(self, x: Tensor, rounding: Rounding) -> Tensor:
        """``x`` rounded; it stands for a quantized tensor from now on."""
        found = rounding(x)
        self._roundings[found] = rounding
        return found

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        known = bool(args) and isinstance(args[0], Tensor) and isinstance(result, Tensor)
        rounding = self._roundings.get(args[0]) if known else None
        name = getattr(func, "__name__", "")
        if rounding is None or not (name in _COPIES or name in _AVERAGES or name in _OWN_SCALE):
            return result
        if name in _COPIES:
            self._roundings[result] = rounding
            return result
        return self.rounded(result, _OWN_SCALE.get(name, rounding))
