"""Situations for the tests of ``side_by_side.py``: a module that doubles its input, in a few variants."""

from __future__ import annotations

import os
import time

import torch
from side_by_side import Situation
from torch import nn
from torch.export import Dim

N = Dim("n")


class Double(nn.Module):
    def forward(self, x):
        return x + x


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count += x.sum(0)
        return x + self.count


class Halves(nn.Module):
    def forward(self, x):
        return x.view(2, -1, 3) * 2


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("this module never runs")


class Branches(nn.Module):
    def forward(self, x):
        y = None
        for bound in (0, 1):
            if x.sum() > bound:
                y = x
        return -x if y is None else y


class OnlyFour(nn.Module):
    def forward(self, x):
        return x + torch.ones(4, 3)


def x() -> torch.Tensor:
    return torch.randn(4, 3)


def double() -> Situation:
    return Situation(Double(), (x(),), dynamic_shapes={"x": {0: N}})


def bounded() -> Situation:
    return Situation(Double(), (x(),), dynamic_shapes=({0: Dim("n", min=4, max=5)},))


def derived() -> Situation:
    return Situation(Halves(), (x(),), dynamic_shapes={"x": {0: 2 * Dim("half")}})


def automatic() -> Situation:
    return Situation(Double(), (x(),), dynamic_shapes={"x": {0: Dim.AUTO, 1: Dim.AUTO}})


def only_four() -> Situation:
    return Situation(OnlyFour(), (x(),), dynamic_shapes={"x": {0: Dim.DYNAMIC}})


def fails() -> Situation:
    return Situation(Fails(), (x(),))


def branches() -> Situation:
    return Situation(Branches(), (x(),))


def counter() -> Situation:
    return Situation(Counter(), (x(),), calls=2)


def random() -> Situation:
    return Situation(nn.Dropout(), (x(),), dynamic_shapes={"input": {0: N}}, random=True)


def aborts() -> Situation:
    os.abort()


def hangs() -> Situation:
    time.sleep(600)
    raise AssertionError
