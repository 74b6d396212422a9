"""Recurrent layers with dynamic batches and times, hidden states, packed sequences."""

from __future__ import annotations

import torch
from side_by_side import Situation
from torch import nn
from torch.export import Dim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from situations.report import Report

D = Dim.DYNAMIC


class GruWithLengths(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.GRU(5, 8, 2, batch_first=True)

    def forward(self, x, y):
        return self.lstm(x)[0], y


class Recurrent(nn.Module):
    """A recurrent layer and a projection of its last step."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(layer.hidden_size * (2 if layer.bidirectional else 1), 3)

    def forward(self, x):
        output, state = self.layer(x)
        return self.head(output), state


class ManualBidirectional(nn.Module):
    """A forward and a backward layer, masked, as speech synthesizers write it."""

    def __init__(self, kind):
        super().__init__()
        self.ahead, self.back = kind(4, 6, batch_first=True), kind(4, 6, batch_first=True)

    def forward(self, x, mask):
        x = x * mask.unsqueeze(-1)
        ahead, _ = self.ahead(x)
        back, _ = self.back(torch.flip(x, [1]))
        return torch.cat([ahead, torch.flip(back, [1])], -1) * mask.unsqueeze(-1)


class DummyGru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(6, 6)

    def forward(self, input_data, hidden_state):
        return self.gru(input_data, hidden_state)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, _ = self.lstm(packed)
        return pad_packed_sequence(output, batch_first=True)[0]


class FromRagged(nn.Module):
    """Texts of several lengths in one tensor become rows."""

    def forward(self, text, lengths):
        return pad_sequence(torch.split(text, lengths.tolist()), batch_first=True)


class CellLoop(nn.Module):
    """An LSTM cell in a Python loop, with a fixed number of steps."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(4, 6), nn.Linear(6, 4)

    def forward(self, x):
        h, c = torch.zeros(x.size(0), 6), torch.zeros(x.size(0), 6)
        outputs = []
        for _ in range(5):
            h, c = self.cell(x, (h, c))
            x = self.head(h)
            outputs.append(x)
        return torch.stack(outputs, 1)


class EncoderDecoder(nn.Module):
    """The state of one layer starts another."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True, proj_size=3)
        self.decoder = nn.LSTM(4, 6, num_layers=1, batch_first=True)

    def forward(self, source, target):
        memory, (h, c) = self.encoder(source)
        output, _ = self.decoder(target, (torch.cat([h[0], h[1]], -1)[None], c[:1]))
        return memory, output


BATCH_TIME = {0: D, 1: D}


def masked(length: int) -> torch.Tensor:
    return (torch.arange(length)[None] < torch.tensor([length, length - 3])[:, None]).float()


REPORTS = (
    Report(
        "GRU of two layers with dynamic batch and time",
        "https://github.com/pytorch/pytorch/issues/126339",
        lambda: Situation(
            GruWithLengths(),
            (torch.randn(2, 11, 5), torch.tensor([9, 10])),
            dynamic_shapes=(
                {0: Dim("batch", max=1024), 1: Dim("time", min=2, max=3000)},
                {0: Dim("batch", max=1024)},
            ),
        ),
    ),
    Report(
        "LSTM with a time from 6 to 100000, batch 1",
        "https://github.com/pytorch/executorch/issues/5176",
        lambda: Situation(
            Recurrent(nn.LSTM(8, 6, batch_first=True)),
            (torch.randn(1, 20, 8),),
            dynamic_shapes={"x": {1: Dim("dim1_x", min=6, max=100000)}},
        ),
    ),
    Report(
        "bidirectional LSTM with all sizes dynamic",
        "https://github.com/pytorch/pytorch/issues/118740",
        lambda: Situation(
            Recurrent(nn.LSTM(5, 4, 2, bidirectional=True)), (torch.randn(9, 3, 5),), dynamic_shapes={"x": BATCH_TIME}
        ),
    ),
    Report(
        "nn.RNN with relu",
        "https://github.com/pytorch/pytorch/issues/175520",
        lambda: Situation(
            Recurrent(nn.RNN(5, 4, nonlinearity="relu", batch_first=True)),
            (torch.randn(2, 9, 5),),
            dynamic_shapes={"x": BATCH_TIME},
        ),
    ),
    Report(
        "two directions by hand freeze the time of an LSTM",
        "https://github.com/pytorch/pytorch/issues/191855",
        lambda: Situation(
            ManualBidirectional(nn.LSTM),
            (torch.randn(2, 9, 4), masked(9)),
            dynamic_shapes=({0: Dim("batch"), 1: Dim("time")}, {0: Dim("batch"), 1: Dim("time")}),
        ),
    ),
    Report(
        "two directions by hand freeze the time of a GRU",
        "https://github.com/pytorch/pytorch/issues/191855",
        lambda: Situation(
            ManualBidirectional(nn.GRU),
            (torch.randn(2, 9, 4), masked(9)),
            dynamic_shapes=({0: Dim("batch"), 1: Dim("time")}, {0: Dim("batch"), 1: Dim("time")}),
        ),
    ),
    Report(
        "GRU with the reset gate on the wrong side",
        "https://github.com/pytorch/pytorch/issues/189225",
        lambda: Situation(nn.GRU(4, 8), (torch.randn(5, 2, 4),), dynamic_shapes=({0: D, 1: D},)),
    ),
    Report(
        "GRU with a hidden state, exported at batch 1",
        "https://github.com/microsoft/onnxruntime/issues/19270",
        lambda: Situation(
            DummyGru(),
            (torch.randn(10, 1, 6), torch.randn(1, 1, 6)),
            dynamic_shapes={"input_data": {1: Dim("batch_size")}, "hidden_state": {1: Dim("batch_size")}},
        ),
    ),
    Report(
        "pack_padded_sequence around an LSTM",
        "https://github.com/pytorch/pytorch/issues/112044",
        lambda: Situation(
            Packed(),
            (torch.randn(3, 8, 4), torch.tensor([5, 8, 3])),
            dynamic_shapes={"x": {0: Dim("batch"), 1: Dim("time")}, "lengths": {0: Dim("batch")}},
        ),
    ),
    Report(
        "pad_sequence of ragged texts",
        "https://github.com/pytorch/pytorch/issues/127153",
        lambda: Situation(FromRagged(), (torch.randint(0, 50, (10,)), torch.tensor([3, 5, 2]))),
    ),
    Report(
        "LSTMCell in a loop of five steps",
        "https://github.com/pytorch/pytorch/issues/123089",
        lambda: Situation(CellLoop(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "encoder and decoder with projections",
        "https://github.com/pytorch/pytorch/issues/120626",
        lambda: Situation(
            EncoderDecoder(),
            (torch.randn(2, 7, 4), torch.randn(2, 5, 4)),
            dynamic_shapes={
                "source": {0: Dim("batch"), 1: Dim("source_length")},
                "target": {0: Dim("batch"), 1: Dim("target_length")},
            },
        ),
    ),
    Report(
        "the second recurrent export in one process",
        "https://github.com/pytorch/pytorch/issues/164834",
        lambda: Situation(
            Recurrent(nn.GRU(5, 4, batch_first=True)),
            (torch.randn(2, 9, 5),),
            dynamic_shapes={"x": BATCH_TIME},
            exports=2,
        ),
    ),
)
