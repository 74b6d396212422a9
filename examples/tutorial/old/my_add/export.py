"""A function of a C++ extension, exported through an autograd.Function that calls it.

``symbolic`` multiplies a float by an int64 constant, which the old exporter and the bridge convert to a float.

    cd examples/tutorial/old/my_add && python setup.py build_ext --inplace
    opbridge run-script examples/tutorial/old/my_add/export.py build/my_add.onnx
"""

import sys

import torch

# isort: split
import my_lib  # This import needs the libraries that torch loads.


class MyAddFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return my_lib.my_add(a, b)

    @staticmethod
    def symbolic(g, a, b):
        two = g.op("Constant", value_t=torch.tensor([2]))
        a = g.op("Mul", a, two)
        return g.op("Add", a, b)


my_add = MyAddFunction.apply


class MyAdd(torch.nn.Module):
    def forward(self, a, b):
        return my_add(a, b)


if __name__ == "__main__":
    torch.onnx.export(
        MyAdd().eval(),
        (torch.rand(1, 3, 10, 10), torch.rand(1, 3, 10, 10)),
        sys.argv[1] if len(sys.argv) > 1 else "my_add.onnx",
        input_names=["a", "b"],
        output_names=["sum"],
    )
