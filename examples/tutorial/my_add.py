"""An operator of your own, declared once: 2a + b.

The decorated function is a torch.library operator from then on. opbridge finds its output's shape by tracing it, keeps
it as one node ``mylib::my_add`` in the ONNX graph, and gives that node a function body by exporting the function, so
that any engine runs it. ``my_add.h`` is a kernel for it, which is optional: the same C++ code runs in ONNX Runtime and
in PyTorch on the CPU.

    opbridge export examples/tutorial/my_add.py:model -o build/my_add
"""

import torch
from torch import Tensor

import opbridge


@opbridge.operator("mylib::my_add")
def my_add(a: Tensor, b: Tensor) -> Tensor:
    """Return 2a + b, broadcast."""
    return 2 * a + b


my_add.kernel("my_add.h")


class MyAdd(torch.nn.Module):
    def forward(self, a, b):
        return my_add(a, b)


def model():
    torch.manual_seed(0)
    rows = torch.export.Dim("rows")
    return {
        "model": MyAdd().eval(),
        "args": (torch.randn(3, 4), torch.randn(3, 4)),
        "dynamic_shapes": {"a": {0: rows}, "b": {0: rows}},
        "input_names": ["a", "b"],
        "output_names": ["sum"],
    }
