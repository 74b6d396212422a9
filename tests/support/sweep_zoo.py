"""Models for tests of sweeps: one that passes, and one for each way in which a task can end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from unmapped import lost

BATCH = {0: torch.export.Dim.DYNAMIC}


class Model(torch.nn.Module):
    """A linear layer after an action."""

    def __init__(self, action: Callable[[torch.Tensor], Any] = lambda x: x) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.action = action

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.action(x)
        return self.layer(x).relu()


class Unmapped(torch.nn.Module):
    """An operator that nothing maps to ONNX."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = lost(x)
        return result


class Fixed(torch.nn.Module):
    """A loop over a size, which torch.export unrolls for the example."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(0, x.shape[0], 64):
            x = x * 2
        return x


def entry(module: torch.nn.Module) -> dict[str, Any]:
    return {"model": module, "args": (torch.rand(2, 4),), "dynamic_shapes": (BATCH,)}


def raises(x: torch.Tensor) -> None:
    raise ValueError("this model can't run at 3 places")


def sizes(x: torch.Tensor) -> None:
    torch.empty(1 << 40)


entries = {
    "good": lambda: entry(Model()),
    "unmapped": lambda: entry(Unmapped()),
    "fixed": lambda: {**entry(Fixed()), "dynamic_shapes": ({0: torch.export.Dim("batch", max=64)},)},
    "raises": lambda: entry(Model(raises)),
    "hungry": lambda: entry(Model(sizes)),
    "crashes": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "hangs": lambda: time.sleep(600),
    **{f"naps{number}": lambda: time.sleep(1) for number in range(4)},
    **{f"slow{number}": (lambda: [time.sleep(1), entry(Model())][1]) for number in range(2)},
}
