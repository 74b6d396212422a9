"""Keep a formula as one node: x.clamp(min=0) / (1 + exp(-x)).

Written inline it would become four ONNX nodes, each a pass over the tensor. As an operator it stays one node of the
domain ``mylib``, with a kernel (``clamp_swish.h``) that needs one pass. Where a program does not load the kernel, the
node's function body runs.

    opbridge export examples/tutorial/clamp_swish.py:model -o build/clamp_swish
"""

import torch
from torch import Tensor

import opbridge


@opbridge.operator("mylib::clamp_swish")
def clamp_swish(x: Tensor) -> Tensor:
    """Return x sigmoid(x) where x is positive and 0 elsewhere."""
    return x.clamp(min=0) / (1 + torch.exp(-x))


clamp_swish.kernel("clamp_swish.h")


class ClampSwish(torch.nn.Module):
    def forward(self, x):
        return clamp_swish(x)


class Net(torch.nn.Module):
    """Two convolutions, each with the activation above: two nodes, one function body."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), ClampSwish(), torch.nn.Conv2d(8, 4, 1), ClampSwish()
        )

    def forward(self, x):
        return self.body(x)


def model():
    torch.manual_seed(0)
    return {
        "model": Net().eval(),
        "args": (torch.randn(2, 3, 12, 12),),
        "dynamic_shapes": {"x": {0: torch.export.Dim("batch")}},
        "input_names": ["x"],
        "output_names": ["y"],
    }
