"""Recurrent layers: without gates, with a projection, and over sequences of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from onnxscript import INT32
from onnxscript import opset18 as op
from torch import Tensor

import opbridge.catalog.formulas.padded_layer  # noqa: F401 - defines the operator
from opbridge.catalog.declare.spec import Sample, decomposition, translation
from opbridge.torch_graph.recurrent import looped_lstm, unrolled_lstm


def _samples() -> list[Sample]:
    torch.manual_seed(0)
    found = []
    for layers, biases, both, batch_first in ((1, True, False, False), (2, True, True, True), (2, False, False, True)):
        layer = torch.nn.RNN(3, 4, layers, bias=biases, bidirectional=both)
        weights = [weight.detach() for weight in layer.parameters()]
        x, state = torch.randn(5, 2, 3), torch.randn(layers * (1 + both), 5 if batch_first else 2, 4)
        found.append(Sample((x, state, weights, biases, layers, 0.0, False, both, batch_first)))
    return found


@translation("aten::rnn_tanh.input", samples=_samples)
def rnn_tanh(
    input: Any,
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """One RNN node for each layer, with the activation tanh.

    rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train,
    bool bidirectional, bool batch_first) -> (Tensor, Tensor)
    """
    return _rnn("Tanh", input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


@translation("aten::rnn_relu.input", samples=_samples)
def rnn_relu(
    input: Any,
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """One RNN node for each layer, with the activation relu.

    rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train,
    bool bidirectional, bool batch_first) -> (Tensor, Tensor)
    """
    return _rnn("Relu", input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def _rnn(
    activation: str,
    x: Any,
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, Any]:
    if train and dropout:
        raise ValueError("dropout between the layers in training mode")
    directions, each = 2 if bidirectional else 1, 4 if has_biases else 2
    hidden = hx.shape[2]
    x = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    states = []
    for layer in range(num_layers):
        first = layer * directions
        weights = [params[each * (first + direction) :][:each] for direction in range(directions)]
        biases = [op.Concat(*part[2:], axis=0) for part in weights] if has_biases else []
        y, state = op.RNN(
            x,
            _stacked([part[0] for part in weights]),
            _stacked([part[1] for part in weights]),
            _stacked(biases) if has_biases else None,
            None,
            op.Slice(hx, [first], [first + directions], [0]),
            activations=[activation] * directions,
            direction="bidirectional" if bidirectional else "forward",
            hidden_size=hidden,
        )
        x = op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, directions * hidden])
        states.append(state)
    x = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    return x, op.Concat(*states, axis=0) if num_layers > 1 else states[0]


def _stacked(values: Sequence[Any]) -> Any:
    rows = [op.Unsqueeze(value, [0]) for value in values]
    return op.Concat(*rows, axis=0) if len(rows) > 1 else rows[0]


@decomposition("aten::lstm.input", overrides="torch's mapping has no projections, and ONNX's LSTM has none either")
def lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """An LSTM layer with a projection, step by step, or as a loop over a dynamic length.

    lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train,
    bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)
    """
    if hx[0].shape[2] == hx[1].shape[2]:
        return NotImplemented
    is_fixed = isinstance(input.shape[1 if batch_first else 0], int)
    return (unrolled_lstm if is_fixed else looped_lstm)(
        input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
    )


def _samples_of_lengths() -> list[Sample]:
    torch.manual_seed(0)
    found = []
    for mode, gates, both, biases in (
        ("LSTM", 4, False, True), ("LSTM", 4, True, False), ("GRU", 3, True, True), ("RNN_TANH", 1, True, True),
        ("RNN_RELU", 1, False, False),
    ):  # fmt: skip
        shapes = [(gates * 4, 3), (gates * 4, 4), *[(gates * 4,)] * (2 * biases)]
        params = [torch.randn(*shape) / 2 for _ in range(1 + both) for shape in shapes]
        state = torch.randn(1 + both, 3, 4)
        lengths = torch.tensor([3, 5, 1])
        for h in (state, None):
            c = state + 1 if h is not None and mode == "LSTM" else None
            found.append(Sample((torch.randn(5, 3, 3), lengths, params, h, c, mode, both), name=mode))
    return found


_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN_TANH": (0,), "RNN_RELU": (0,)}
"""The places of ONNX's gates among torch's, which are in the order i, f, g, o and r, z, n."""


@translation("opbridge::padded_layer", samples=_samples_of_lengths)
def padded_layer(
    input: Any, lengths: Any, params: Sequence[Any], h: Any, c: Any, mode: str, bidirectional: bool
) -> tuple[Any, Any, Any]:
    """One LSTM, GRU or RNN node with the lengths of the sequences.

    padded_layer(Tensor input, Tensor lengths, Tensor[] params, Tensor? h, Tensor? c, str mode, bool bidirectional)
    -> (Tensor, Tensor, Tensor)
    """
    directions = 2 if bidirectional else 1
    each, hidden = len(params) // directions, params[1].shape[1]

    def in_order(weight: Any) -> Any:
        parts = [op.Slice(weight, [gate * hidden], [(gate + 1) * hidden], [0]) for gate in _GATES[mode]]
        return op.Concat(*parts, axis=0) if len(parts) > 1 else weight

    weights = [[in_order(weight) for weight in params[first:][:each]] for first in range(0, len(params), each)]
    inputs = [input, _stacked([part[0] for part in weights]), _stacked([part[1] for part in weights])]
    inputs.append(_stacked([op.Concat(*part[2:], axis=0) for part in weights]) if each > 2 else None)
    inputs += [op.Cast(lengths, to=INT32.dtype), h]
    options = {"direction": "bidirectional" if bidirectional else "forward", "hidden_size": hidden}
    if mode == "LSTM":
        y, *states = op.LSTM(*inputs, c, **options)
    elif mode == "GRU":
        y, *states = op.GRU(*inputs, linear_before_reset=1, **options)
    else:
        activation = {"RNN_TANH": "Tanh", "RNN_RELU": "Relu"}[mode]
        y, *states = op.RNN(*inputs, activations=[activation] * directions, **options)
    if mode != "LSTM":
        states.append(op.CastLike(op.Constant(value_floats=[]), input))
    return (op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, directions * hidden]), *states)
