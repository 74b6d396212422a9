"""A torchvision operator declared with register_custom_op_symbolic, as a node of the domain ``custom``.

By default the node has only two inputs, as in the best-known tutorial, so it can be inspected but not run. With
``--all`` it has all inputs and attributes, and a kernel can run it.

    opbridge run-script examples/tutorial/old/deform_conv.py build/deform_conv.onnx
    opbridge run-script examples/tutorial/old/deform_conv.py build/deform_conv.onnx --all
"""

import sys

import torch
import torchvision
from torch.onnx import register_custom_op_symbolic
from torch.onnx.symbolic_helper import parse_args


@parse_args("v", "v", "v", "v", "v", "i", "i", "i", "i", "i", "i", "i", "i", "none")
def symbolic(
    g,
    input,
    weight,
    offset,
    mask,
    bias,
    stride_h,
    stride_w,
    pad_h,
    pad_w,
    dil_h,
    dil_w,
    n_weight_grps,
    n_offset_grps,
    use_mask,
):
    return g.op("custom::deform_conv2d", input, offset)


@parse_args("v", "v", "v", "v", "v", "i", "i", "i", "i", "i", "i", "i", "i", "none")
def symbolic_of_all(
    g,
    input,
    weight,
    offset,
    mask,
    bias,
    stride_h,
    stride_w,
    pad_h,
    pad_w,
    dil_h,
    dil_w,
    n_weight_grps,
    n_offset_grps,
    use_mask,
):
    return g.op(
        "custom::deform_conv2d",
        input,
        weight,
        offset,
        bias,
        stride_i=[stride_h, stride_w],
        padding_i=[pad_h, pad_w],
        dilation_i=[dil_h, dil_w],
    )


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 18, 3)
        self.conv2 = torchvision.ops.DeformConv2d(3, 3, 3)

    def forward(self, x):
        return self.conv2(x, self.conv1(x))


def main():
    everything = "--all" in sys.argv
    register_custom_op_symbolic("torchvision::deform_conv2d", symbolic_of_all if everything else symbolic, 9)
    torch.manual_seed(0)
    files = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    torch.onnx.export(
        Model().eval(), torch.rand(1, 3, 10, 10), files[0] if files else "deform_conv.onnx", opset_version=18
    )


if __name__ == "__main__":
    main()
