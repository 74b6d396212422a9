"""Recurrent layers over packed sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import opbridge
from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.errors import CaptureError

LENGTHS = torch.tensor([3, 6, 1])


class Packed(nn.Module):
    """A layer over padded sequences; the states are returned as they are."""

    def __init__(self, layer: nn.RNNBase, enforce_sorted: bool = False, total: bool = False) -> None:
        super().__init__()
        self.layer, self.options, self.total = layer, {"enforce_sorted": enforce_sorted}, total

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, state: Any = None) -> Any:
        first = self.layer.batch_first
        packed = pack_padded_sequence(x, lengths, batch_first=first, **self.options)
        assert isinstance(packed, PackedSequence)
        output, final = self.layer(packed, state)
        total = x.shape[1 if first else 0] if self.total else None
        padded, sizes = pad_packed_sequence(output, batch_first=first, padding_value=-1.0, total_length=total)
        return padded, final, sizes


def _shapes(batch_first: bool) -> dict[str, Any]:
    batch, time = torch.export.Dim("batch"), torch.export.Dim("time")
    return {"x": {0: batch, 1: time} if batch_first else {0: time, 1: batch}, "lengths": {0: batch}}


def _x(batch_first: bool) -> torch.Tensor:
    return torch.randn(3, 6, 4) if batch_first else torch.randn(6, 3, 4)


CASES: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "LSTM": (Packed(nn.LSTM(4, 5, batch_first=True)), LENGTHS),
    "sorted GRU": (Packed(nn.GRU(4, 5), enforce_sorted=True), LENGTHS.sort(descending=True).values),
    "two layers in both directions": (
        Packed(nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), total=True),
        LENGTHS,
    ),
    "GRU in both directions": (Packed(nn.GRU(4, 5, 2, bias=False, bidirectional=True)), LENGTHS),
    "RNN": (Packed(nn.RNN(4, 5, nonlinearity="relu", bidirectional=True)), LENGTHS),
}


@pytest.mark.quick(every=4)
@pytest.mark.parametrize("case", CASES)
def test_verified(case: str, tmp_path: Path) -> None:
    model, lengths = CASES[case]
    first = model.layer.batch_first
    bundle = opbridge.export(
        model.eval(),
        (_x(first), lengths),
        dynamic_shapes=_shapes(first),
        path=tmp_path / "b",
    )
    assert bundle.verified


@pytest.mark.slow
def test_openvino_with_fixed_sizes(tmp_path: Path) -> None:
    """It ignores the lengths if batch or time is dynamic."""
    pytest.importorskip("openvino")
    model, lengths = CASES["GRU in both directions"]
    bundle = opbridge.export(model.eval(), (_x(False), lengths), path=tmp_path / "b", engines=("openvino",))
    assert bundle.verified


def _captured(model: nn.Module, *args: Any, **options: Any) -> Any:
    return capture(model.eval(), args, rewrites=Catalog.load().rewrites(), **options).program.module()


@pytest.mark.quick("sorted GRU", every=3)
@pytest.mark.parametrize("case", CASES)
def test_captured(case: str) -> None:
    model, lengths = CASES[case]
    first = model.layer.batch_first
    program = _captured(model, _x(first), lengths, dynamic_shapes=_shapes(first))
    x = torch.randn(2, 5, 4) if first else torch.randn(5, 2, 4)
    _compare(program, model, x, torch.tensor([4, 2]))


def _compare(program: nn.Module, model: nn.Module, *args: Any) -> None:
    results, expected = (torch.utils._pytree.tree_leaves(one(*args)) for one in (program, model))
    for result, other in zip(results, expected, strict=True):
        torch.testing.assert_close(result, other)


def test_an_initial_state_is_in_the_order_of_the_batch() -> None:
    model = Packed(nn.LSTM(4, 5, 2, batch_first=True))
    state = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    program = _captured(model, _x(True), LENGTHS, state)
    _compare(program, model, _x(True), torch.tensor([2, 4, 6]), state)


class OfRows(nn.Module):
    """Sequences as a list, and a packed sequence that no layer takes."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return pad_packed_sequence(pack_sequence([x, y], enforce_sorted=False), total_length=7)[0]


def test_sequences_of_known_lengths() -> None:
    program = _captured(OfRows(), torch.ones(2, 3), torch.ones(5, 3))
    x, y = torch.randn(2, 3), torch.randn(5, 3)
    assert torch.equal(program(x, y), OfRows()(x, y))


class UsesData(nn.Module):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return pack_padded_sequence(x, lengths, enforce_sorted=False).data * 2


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (UsesData(), "The rows of a packed sequence"),
        (Packed(nn.LSTM(4, 5, proj_size=2)), "a projection (proj_size)"),
    ],
)
def test_refused_with_the_line(model: nn.Module, message: str) -> None:
    with pytest.raises(CaptureError) as caught:
        _captured(model, _x(False), LENGTHS)
    assert message in caught.value.message
    assert "test_packed_sequence.py:" in caught.value.message
    assert caught.value.fix
