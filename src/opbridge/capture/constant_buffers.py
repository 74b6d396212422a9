"""Reads of buffers during a capture: a buffer is a constant of the ONNX model, so Python may know its contents.

A captured tensor has no contents. ``if self.initialized:`` can be decided nevertheless if ``initialized`` is a buffer
that ``forward`` does not change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from opbridge.findings.buffer_mutation import mutated_buffers

__all__ = ["ConstantBuffers"]

_CONVERSIONS: dict[Any, Callable[[Any], Any]] = {
    torch.Tensor.__bool__: bool,
    torch.Tensor.__int__: int,
    torch.Tensor.__float__: float,
    torch.Tensor.item: lambda value: value,
}
"""The reads of a tensor with one element."""

_MOST_ELEMENTS = 1024


class ConstantBuffers:
    """Answers reads of a module's buffers during its capture.

    Args:
        module: The module, before its capture.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._contents = {
            name: buffer.tolist()
            for name, buffer in module.named_buffers()
            if type(buffer) is torch.Tensor
            and buffer.layout is torch.strided
            and not buffer.is_meta
            and buffer.numel() <= _MOST_ELEMENTS
        }
        self._read: set[str] = set()

    def __bool__(self) -> bool:
        """Whether the module has such buffers."""
        return bool(self._contents)

    def read(self, function: Any, tensor: Any) -> Any:
        """The result of a method of a tensor, if the tensor is a buffer; otherwise NotImplemented."""
        name = next((name for name in self._contents if self._module.get_buffer(name) is tensor), None)
        if name is None:
            return NotImplemented
        self._read.add(name)
        contents = self._contents[name]
        if function is torch.Tensor.tolist:
            return contents
        while isinstance(contents, list):
            (contents,) = contents
        return _CONVERSIONS[function](contents)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer reads inside the block."""
        with _Reads(self):
            yield

    def are_constant_in(self, program: torch.export.ExportedProgram) -> bool:
        """Whether the program changes none of the buffers that were read."""
        return self._read.isdisjoint(mutated_buffers(program))


class _Reads(TorchFunctionMode):
    def __init__(self, buffers: ConstantBuffers) -> None:
        super().__init__()
        self._buffers = buffers

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _CONVERSIONS or func is torch.Tensor.tolist:
            result = self._buffers.read(func, args[0])
            if result is not NotImplemented:
                return result
        return func(*args, **(kwargs or {}))
