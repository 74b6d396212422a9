"""Modules that convert themselves or a submodule in their forward pass."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.nn.Module.to")
def to(original: Callable[..., nn.Module], self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """The module converted to another element type, or the module itself if it already has that type.

    torch replaces the contents of the parameters, which is impossible during the capture. This rewrite makes a copy of
    the module with converted parameters, so that the conversion is part of the graph.
    """
    return _converted(self, lambda tensor: tensor.to(*args, **kwargs))


@rewrite("torch.nn.Module.float")
def to_float(original: Callable[..., nn.Module], self: nn.Module) -> nn.Module:
    """Convert to float32 with :func:`to`."""
    return _converted(self, Tensor.float)


@rewrite("torch.nn.Module.double")
def to_double(original: Callable[..., nn.Module], self: nn.Module) -> nn.Module:
    """Convert to float64 with :func:`to`."""
    return _converted(self, Tensor.double)


@rewrite("torch.nn.Module.half")
def to_half(original: Callable[..., nn.Module], self: nn.Module) -> nn.Module:
    """Convert to float16 with :func:`to`."""
    return _converted(self, Tensor.half)


@rewrite("torch.nn.Module.bfloat16")
def to_bfloat16(original: Callable[..., nn.Module], self: nn.Module) -> nn.Module:
    """Convert to bfloat16 with :func:`to`."""
    return _converted(self, Tensor.bfloat16)


def _converted(module: nn.Module, convert: Callable[[Tensor], Tensor]) -> nn.Module:
    tensors = itertools.chain(module.parameters(), module.buffers())
    dtypes = {tensor.dtype for tensor in tensors if _is_number(tensor)}
    if all(convert(torch.empty(0, dtype=dtype)).dtype == dtype for dtype in dtypes):
        return module
    return _copy(module, convert)


def _copy(module: nn.Module, convert: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of the module with converted tensors, all of them buffers: a parameter must be a leaf tensor."""
    result = copy.copy(module)
    named = itertools.chain(module._parameters.items(), module._buffers.items())
    result._parameters = {}
    result._buffers = {name: convert(t) if t is not None and _is_number(t) else t for name, t in named}
    result._modules = {name: part and _copy(part, convert) for name, part in module._modules.items()}
    return result


def _is_number(tensor: Tensor) -> bool:
    """Whether ``Module.to`` converts the tensor; it does not convert integers and booleans."""
    return tensor.is_floating_point() or tensor.is_complex()
