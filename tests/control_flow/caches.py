"""Loops whose state is in objects and modules: caches that grow while decoding, windows, hidden states."""

from __future__ import annotations

import torch
from program import program
from torch import nn

LENGTH = {"tokens": {1: torch.export.Dim.DYNAMIC}}
TOKENS = [(torch.tensor([tokens]),) for tokens in ([1, 4, 2], [3, 0, 5, 1, 2], [2, 2])]
END = 3


class _Cache:
    def __init__(self):
        self.keys = self.values = None

    def update(self, keys, values):
        if self.keys is None:
            self.keys, self.values = keys, values
        else:
            self.keys = torch.cat([self.keys, keys], 1)
            self.values = torch.cat([self.values, values], 1)
        return self.keys, self.values


def _attended(query, keys, values):
    return torch.softmax(query @ keys.transpose(1, 2), -1) @ values


class _Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, cache):
        return _attended(x, *cache.update(self.key(x), self.value(x)))


class _Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.output = nn.Embedding(6, 8), nn.Linear(8, 6)


@program("Loop", "If", cases=TOKENS, dynamic=LENGTH)
class CacheInAnObject(_Decoder):
    def __init__(self):
        super().__init__()
        self.layer = _Layer()

    def forward(self, tokens):
        cache, found = _Cache(), []
        x = self.layer(self.embedding(tokens), cache)[:, -1]
        for _ in range(5):
            token = self.output(x).argmax(-1)
            found.append(token)
            if token.item() == END:
                break
            x = self.layer(self.embedding(token)[:, None], cache)[:, 0]
        return torch.stack(found, 1)


STEPS = [(*tokens, steps) for tokens, steps in zip(TOKENS, (4, 1, 7), strict=True)]


@program("Loop", cases=STEPS, dynamic={**LENGTH, "steps": None})
class CacheInAnObjectForManySteps(CacheInAnObject):
    def forward(self, tokens, steps):
        cache, found = _Cache(), []
        x = self.layer(self.embedding(tokens), cache)[:, -1]
        for _ in range(int(steps)):
            token = self.output(x).argmax(-1)
            found.append(token)
            x = self.layer(self.embedding(token)[:, None], cache)[:, 0]
        return torch.stack(found, 1)


@program("Loop", "If", cases=TOKENS, dynamic=LENGTH)
class CacheInTheModule(_Decoder):
    def __init__(self):
        super().__init__()
        self.keys, self.weights = None, None

    def step(self, tokens):
        x = self.embedding(tokens)
        self.keys = x if self.keys is None else torch.cat([self.keys, x], 1)
        self.weights = torch.softmax(x @ self.keys.transpose(1, 2), -1)  # For the user; no later step reads them.
        return self.output((self.weights @ self.keys)[:, -1]).argmax(-1)

    def forward(self, tokens):
        self.keys = None
        token = self.step(tokens)
        found = [token]
        while token.item() != END and len(found) < 6:
            token = self.step(token[:, None])
            found.append(token)
        return torch.stack(found, 1)


@program("Loop", "If", cases=TOKENS, dynamic=LENGTH)
class CachesInAList(_Decoder):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def step(self, x, caches):
        new = []
        for layer, cache in zip(self.layers, caches, strict=True):
            keys = layer(x) if cache is None else torch.cat([cache, layer(x)], 1)
            new.append(keys)
            x = x + _attended(x, keys, keys)
        return x[:, -1], new

    def forward(self, tokens):
        x, caches = self.step(self.embedding(tokens), [None, None])
        found = []
        for _ in range(5):
            token = self.output(x).argmax(-1)
            found.append(token)
            if (token == END).all():
                break
            x, caches = self.step(self.embedding(token)[:, None], caches)
        return torch.stack(found, 1)


ROWS = {"x": {0: torch.export.Dim.DYNAMIC}}
STREAMS = [(torch.arange(2.0 * n).reshape(n, 2),) for n in (5, 2, 9)]


class _Window:
    def __init__(self):
        self.rows, self.seen = torch.zeros(3, 2), 0

    def mean(self, row):
        self.rows, self.seen = torch.cat([self.rows[1:], row[None]]), self.seen + 1
        return self.rows.mean(0)


@program("Loop", cases=STREAMS, dynamic=ROWS)
def windows(x):
    window = _Window()
    return torch.stack([window.mean(row) for row in x]), x + window.seen


class _Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.hidden = nn.Linear(2, 2), None

    def forward(self, x):
        self.hidden = torch.tanh(self.linear(x) + (0 if self.hidden is None else self.hidden))
        return self.hidden


@program("Loop", cases=STREAMS, dynamic=ROWS)
class StateOfAModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = _Cell()

    def forward(self, x):
        self.cell.hidden = None
        return torch.stack([self.cell(row) for row in x])
