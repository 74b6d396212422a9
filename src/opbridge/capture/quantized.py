"""Quantized modules of torch.ao as modules that quantize and dequantize, while a model is captured.

A quantized tensor of PyTorch has no counterpart in a graph. Its place is taken by the tensor of the numbers that it
stands for, so that each module returns what QuantizeLinear and DequantizeLinear return.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from opbridge.capture.quantized_functions import QuantizedFunctions, rounding_to
from opbridge.capture.submodules import replaced_submodules
from opbridge.catalog.formulas.quantization import quantization_parameters
from opbridge.torch_graph.reuse import quantized_operators

__all__ = ["dequantized_modules"]

_LIBRARY = "torch.ao.nn.quantized"
_RANGES = {torch.quint8: (0, 255, torch.uint8), torch.qint8: (-128, 127, torch.int8)}


@contextlib.contextmanager
def dequantized_modules(module: nn.Module) -> Iterator[None]:
    """Replace the quantized submodules by modules that quantize and dequantize inside the block."""
    if _LIBRARY not in sys.modules:
        yield
        return
    functions = QuantizedFunctions()

    def replacement(child: nn.Module) -> nn.Module | None:
        other = _replacement(child, functions)
        return other.eval() if other is not None else None

    with (
        replaced_submodules(module, replacement) as has_any,
        functions if has_any else contextlib.nullcontext(),
    ):
        yield


def _replacement(child: nn.Module, functions: QuantizedFunctions) -> nn.Module | None:
    """The module that takes the place of a quantized module; None for any other module."""
    kind = type(child)
    if not kind.__module__.startswith(("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.")):
        return None
    given: Any = child
    if kind.__name__ == "DeQuantize":
        return _Dequantized()
    if kind.__name__ == "Quantize":
        return _Rounded(functions, float(given.scale), int(given.zero_point), given.dtype)
    if kind.__name__ == "QFunctional":
        return _Functional(given, functions)
    if kind.__name__ in ("Linear", "LinearReLU") and given._packed_params.dtype == torch.qint8:
        return _Weighted(given, functions, functional.linear)
    convolutions = {"Conv1d": functional.conv1d, "Conv2d": functional.conv2d, "Conv3d": functional.conv3d}
    convolve = convolutions.get(kind.__name__.replace("ReLU", ""))
    if convolve is None or given.padding_mode != "zeros":
        return None
    settings = given.stride, given.padding, given.dilation, given.groups
    return _Weighted(given, functions, lambda x, weight, bias: convolve(x, weight, bias, *settings))


class _Rounded(nn.Module):
    """The numbers of a grid that are nearest to the input's, as QuantizeLinear and DequantizeLinear give them."""

    def __init__(self, functions: QuantizedFunctions, scale: float, zero_point: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.functions = functions
        self.rounding = rounding_to(scale, zero_point, *_RANGES[dtype])

    def forward(self, x: Tensor) -> Tensor:
        return self.functions.rounded(x, self.rounding)


class _Dequantized(nn.Module):
    """Another tensor of the same numbers, which stands for no quantized tensor."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.ops.aten.alias(x)
        return found


class _RoundedToRange(nn.Module):
    """The same with a grid that spans the input's range, in 7 bits as PyTorch's kernel uses."""

    def forward(self, x: Tensor) -> Tensor:
        found, zero_point = quantization_parameters(x.amin(), x.amax(), 0, 127, False)
        scale, zero_point = found.to(x.dtype), zero_point.to(x.dtype)
        level = (torch.round(x / scale) + zero_point).clamp(0, 127)
        return (level - zero_point) * scale


class _Weighted(nn.Module):
    """A linear layer or a convolution with integer weights."""

    bias: Tensor | None

    def __init__(
        self,
        given: Any,
        functions: QuantizedFunctions,
        compute: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    ) -> None:
        super().__init__()
        weight = given.weight()
        self.compute = compute
        self.has_relu = "ReLU" in type(given).__name__
        self.register_buffer("weight", weight.int_repr())
        self.register_buffer("bias", None if given.bias() is None else given.bias().detach())
        self.is_per_channel = weight.qscheme() == torch.per_channel_affine
        if self.is_per_channel:
            self.register_buffer("scales", weight.q_per_channel_scales().to(torch.float32))
            self.register_buffer("zero_points", weight.q_per_channel_zero_points())
            self.axis = weight.q_per_channel_axis()
        else:
            self.settings = weight.q_scale(), weight.q_zero_point()
        is_dynamic = ".dynamic." in type(given).__module__
        self.before = _RoundedToRange() if is_dynamic else nn.Identity()
        self.after = nn.Identity() if is_dynamic else _Rounded(functions, given.scale, given.zero_point, torch.quint8)

    def forward(self, x: Tensor) -> Tensor:
        limits = -128, 127, torch.int8
        if self.is_per_channel:
            channels = self.scales, self.zero_points, self.axis
            weight = quantized_operators().dequantize_per_channel(self.weight, *channels, *limits)
        else:
            weight = quantized_operators().dequantize_per_tensor(self.weight, *self.settings, *limits)
        result = self.compute(self.before(x), weight, self.bias)
        return self.after(result.relu() if self.has_relu else result)


class _Functional(nn.Module):
    """The functions of a QFunctional."""

    def __init__(self, given: Any, functions: QuantizedFunctions) -> None:
        super().__init__()
        self.after = _Rounded(functions, float(given.scale), int(given.zero_point), torch.quint8)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.after(x + y)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return self.after((x + y).relu())

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.after(x * y)

    def cat(self, tensors: list[Tensor], dim: int = 0) -> Tensor:
        return self.after(torch.cat(tensors, dim))
