"""A loop in Python, exported traced and scripted, with the argument ``example_outputs`` that torch 1.10 removed.

The loop over a Python number is unrolled in each model, and ``opbridge migrate`` exports the module itself, which gives
the same. ``examples/tutorial/loop.py`` keeps a loop.

    opbridge run-script examples/tutorial/old/loop.py build/loop
"""

import sys
from pathlib import Path

import torch


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n
        self.conv = torch.nn.Conv2d(3, 3, 3)

    def forward(self, x):
        for _ in range(self.n):
            x = self.conv(x)
        return x


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for n in (2, 3):
        model = Model(n)
        x = torch.rand(1, 3, 10, 10)
        outputs = model(x)
        traced = torch.jit.trace(model, x)
        scripted = torch.jit.script(model)
        torch.onnx.export(traced, x, folder / f"{n}_traced.onnx", example_outputs=outputs)
        torch.onnx.export(scripted, x, folder / f"{n}_scripted.onnx", example_outputs=outputs)
