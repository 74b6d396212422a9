"""A recurrent layer over padded sequences of different lengths as a custom operator, whose ONNX form is in ``ops/nn``.

torch computes such a layer on a packed sequence, whose shape depends on the lengths. ONNX's layers take a padded tensor
and the lengths instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["padded_layer"]


@torch.library.custom_op("opbridge::padded_layer", mutates_args=())
def padded_layer(
    input: Tensor,
    lengths: Tensor,
    params: Sequence[Tensor],
    h: Tensor | None,
    c: Tensor | None,
    mode: str,
    bidirectional: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The results of one layer, each sequence as if it were alone.

    Args:
        input: The sequences, of shape (time, batch, width).
        lengths: The length of each sequence, at least 1, of shape (batch,).
        params: For each direction the weights of the input and of the state, then the two biases if there are any.
        h: The initial state, of shape (directions, batch, hidden); zeros if None.
        c: The initial state of the cells of an LSTM; zeros if None.
        mode: ``"LSTM"``, ``"GRU"``, ``"RNN_TANH"`` or ``"RNN_RELU"``.
        bidirectional: Whether a second direction begins at the end of each sequence.

    Returns:
        The output, of shape (time, batch, directions * hidden), with zeros after the end of a sequence; the final
        state; and the final state of the cells, which is empty for a layer that is no LSTM.
    """
    directions = 2 if bidirectional else 1
    weights, hidden = list(params), params[1].shape[1]
    zeros = input.new_zeros(directions, input.shape[1], hidden)
    states = [zeros if one is None else one for one in (h, c)]
    output, layer = input.new_zeros(*input.shape[:2], directions * hidden), getattr(torch, mode.lower())
    last = []
    for row, length in enumerate(lengths.tolist()):
        begin = [state[:, row : row + 1].contiguous() for state in states]
        hx = begin if mode == "LSTM" else begin[0]
        has_biases = len(weights) == 4 * directions
        part = input[:length, row : row + 1]
        result, *final = layer(part, hx, weights, has_biases, 1, 0.0, False, bidirectional, False)
        output[:length, row : row + 1] = result
        last.append(final)
    finals = [torch.cat(rows, 1) for rows in zip(*last, strict=True)]
    return output, finals[0], finals[1] if mode == "LSTM" else input.new_empty(0)


@padded_layer.register_fake
def _shapes(
    input: Tensor,
    lengths: Tensor,
    params: Sequence[Tensor],
    h: Tensor | None,
    c: Tensor | None,
    mode: str,
    bidirectional: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    time, batch, _ = input.shape
    directions, hidden = 2 if bidirectional else 1, params[1].shape[1]
    state = input.new_empty(directions, batch, hidden)
    cells = torch.empty_like(state) if mode == "LSTM" else input.new_empty(0)
    return input.new_empty(time, batch, directions * hidden), state, cells
