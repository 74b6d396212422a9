"""Recurrent layers of dynamic length: their shapes without a step, and their decomposition as a loop.

torch computes the shapes of ``lstm`` and its relatives by running their steps, which makes the length constant. For
``lstm`` and ``gru`` torch.onnx replaces them by a loop; torch has none for ``rnn_tanh`` and ``rnn_relu``. While a model
is captured or decomposed, the shapes come from the arguments here, and torch's loop remains for a decomposition.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.errors import InputError

__all__ = ["looped_lstm", "shapes_of_recurrent_layers", "unrolled_lstm"]

_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)


def _layers() -> tuple[torch._ops.OpOverload, ...]:
    aten = torch.ops.aten
    return aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input


@contextlib.contextmanager
def shapes_of_recurrent_layers() -> Iterator[None]:
    """Compute the shapes of recurrent layers from their arguments inside the block; one thread at a time."""
    registered: dict[Any, Any] = torch._decomp.decomposition_table  # type: ignore[assignment]
    kernels = [(layer.py_kernels, key) for layer in _layers() for key in _KEYS]
    keys = [*((registered, layer) for layer in _layers()), *kernels]
    before = [table[key] for table, key in keys]
    for (table, key), steps in zip(keys, before, strict=True):
        table[key] = functools.partial(_shapes_or_steps, steps)
    _forget_found_kernels()
    try:
        yield
    finally:
        for (table, key), steps in zip(keys, before, strict=True):
            table[key] = steps
        _forget_found_kernels()


def _forget_found_kernels() -> None:
    """Make the next call of each layer look for its kernel; torch remembers the one that it called last."""
    for layer in _layers():
        layer._dispatch_cache.clear()


def _shapes_or_steps(kernel: Callable[..., Any], input: Tensor, hx: Any, *arguments: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    # In a decomposition, the steps are recorded.
    if get_proxy_mode() is not None or not isinstance(input, FakeTensor):
        return kernel(input, hx, *arguments)
    states: Sequence[Tensor] = [hx] if isinstance(hx, Tensor) else hx
    bidirectional = arguments[5]
    width = states[0].shape[2] * (2 if bidirectional else 1)
    # The first two axes are those of the input, with batch_first or without.
    return input.new_empty((*input.shape[:2], width)), *(state.new_empty(state.shape) for state in states)


def looped_lstm(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM layer as torch's loop over the steps, with the arguments of ``aten::lstm.input``.

    Raises:
        InputError: torch is older than 2.15, which loses a constant of the loop.
    """
    from torch.export._patches import lstm_while_loop_impl

    if torch.__version__ < "2.15":
        raise InputError(
            "An LSTM layer with a projection (proj_size) can't have a dynamic length with this version of torch.",
            fix="leave the length out of dynamic_shapes, or use torch 2.15 or newer.",
        )
    # Dynamo traces the loop. What it remembers of an earlier loop would make numbers of this one arguments.
    torch.compiler.reset()
    results: tuple[Tensor, Tensor, Tensor] = lstm_while_loop_impl(*arguments)
    return results


def unrolled_lstm(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The results of ``aten::lstm.input``, step by step."""
    from torch._decomp.decompositions import lstm_impl

    result: tuple[Tensor, Tensor, Tensor] = lstm_impl(*arguments)
    return result
