"""Packed sequences: a padded tensor and the lengths of its sequences, in the order of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.utils.rnn import PackedSequence

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.formulas.padded_layer import padded_layer
from opbridge.errors import CaptureError
from opbridge.torch_graph.sources import frames_of_stack, innermost


def _refuse(what: str, fix: str) -> NoReturn:
    place = innermost(frames_of_stack())
    raise CaptureError(f"{what}{f' at {place}: `{place.text}`' if place is not None else ''}.", fix=fix)


class _Padded(PackedSequence):
    """A packed sequence that was not packed.

    Attributes:
        values: The padded tensor, of shape (time, batch, ...). What it has after the end of a sequence has no meaning.
        lengths: The length of each sequence, int64, of shape (batch,).
        longest: The longest of them, if it is known; otherwise None.
    """

    values: Tensor
    lengths: Tensor
    longest: int | None

    def __new__(cls, values: Tensor, lengths: Tensor, longest: int | None) -> _Padded:
        made = tuple.__new__(cls, (None, None, None, None))
        made.values, made.lengths, made.longest = values, lengths, longest
        return made

    def _packed(self, *_: Any) -> NoReturn:
        _refuse(
            "The rows of a packed sequence, whose number depends on the lengths, are used",
            "pass packed sequences to nn.LSTM, nn.GRU, nn.RNN and pad_packed_sequence only, and do anything else to "
            "the padded tensor, before pack_padded_sequence or after pad_packed_sequence.",
        )

    data = batch_sizes = sorted_indices = unsorted_indices = property(_packed)  # type: ignore[assignment]
    __iter__ = __getitem__ = _packed  # type: ignore[assignment]


@rewrite("torch.nn.utils.rnn.pack_padded_sequence")
def pack_padded_sequence(
    original: Callable[..., Any],
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> Any:
    """Keep the padded tensor: the number of rows of a packed one depends on the lengths.

    Layers over packed sequences give the same results in any order of the batch, so that nothing is sorted.
    """
    longest = None
    if not isinstance(lengths, Tensor):
        longest = max(lengths) if all(isinstance(length, int) for length in lengths) else None
        lengths = torch.as_tensor(lengths, dtype=torch.int64)
    return _Padded(input.transpose(0, 1) if batch_first else input, lengths.to(torch.int64), longest)


@rewrite("torch.nn.utils.rnn.pad_packed_sequence")
def pad_packed_sequence(
    original: Callable[..., Any],
    sequence: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> Any:
    """The padded tensor, as long as the longest sequence or ``total_length``, and the lengths."""
    if not isinstance(sequence, _Padded):
        return NotImplemented
    values, size = sequence.values, sequence.values.shape[0]
    inside = torch.arange(size).unsqueeze(1) < sequence.lengths
    values = torch.where(inside.reshape(*inside.shape, *(1,) * (values.dim() - 2)), values, padding_value)
    if total_length is None:
        values = values[: _longest(sequence)]
    elif not statically_known_true(total_length == size):
        pads = [0, 0] * (values.dim() - 1)
        values = torch.nn.functional.pad(values, [*pads, 0, total_length - size], value=padding_value)
    return values.transpose(0, 1) if batch_first else values, sequence.lengths


def _longest(sequence: _Padded) -> Any:
    if sequence.longest is not None:
        return sequence.longest
    longest = sequence.lengths.max().item()
    torch._check(longest >= 1)
    torch._check(longest <= sequence.values.shape[0])
    return longest


@rewrite("torch.nn.LSTM.forward")
def lstm(original: Callable[..., Any], self: torch.nn.LSTM, input: Any, hx: Any = None) -> Any:
    """An LSTM over a packed sequence."""
    if not isinstance(input, _Padded):
        return NotImplemented
    output, h, c = _layers(self, input, hx or (None, None))
    return output, (h, c)


@rewrite("torch.nn.GRU.forward")
@rewrite("torch.nn.RNN.forward")
def gru(original: Callable[..., Any], self: torch.nn.RNNBase, input: Any, hx: Tensor | None = None) -> Any:
    """A layer without cells over a packed sequence."""
    return _layers(self, input, (hx, None))[:2] if isinstance(input, _Padded) else NotImplemented


def _layers(
    module: torch.nn.RNNBase, sequence: _Padded, states: Sequence[Tensor | None]
) -> tuple[_Padded, Tensor, Tensor]:
    """The output as a packed sequence, and the final states of all layers."""
    if module.proj_size or (module.training and module.dropout):
        what = "a projection (proj_size)" if module.proj_size else "dropout in training mode"
        _refuse(f"A packed sequence is passed to a recurrent layer with {what}", "pass it the padded tensor.")
    values, directions = sequence.values, 2 if module.bidirectional else 1
    finals = []
    for layer in range(module.num_layers):
        first = layer * directions
        params = [weight for one in module.all_weights[first : first + directions] for weight in one]
        begin = [None if state is None else state[first : first + directions] for state in states]
        values, *final = padded_layer(values, sequence.lengths, params, *begin, module.mode, module.bidirectional)
        finals.append(final)
    h, c = (torch.cat(states) for states in zip(*finals, strict=True))
    return _Padded(values, sequence.lengths, sequence.longest), h, c
