"""SRCNN with the upsampling factor as an input: an autograd.Function passes ``scales`` to Resize at run time.

Without the Function, the factor would be a constant of the model. Its ``forward`` reads the factor with ``tolist()``,
so the size of the output is unknown during the export.

    opbridge run-script examples/tutorial/old/super_resolution.py build/super_resolution.onnx
"""

import sys

import torch
from torch import nn


class NewInterpolate(torch.autograd.Function):
    @staticmethod
    def symbolic(g, input, scales):
        return g.op(
            "Resize",
            input,
            g.op("Constant", value_t=torch.tensor([], dtype=torch.float32)),
            scales,
            coordinate_transformation_mode_s="pytorch_half_pixel",
            cubic_coeff_a_f=-0.75,
            mode_s="cubic",
            nearest_mode_s="floor",
        )

    @staticmethod
    def forward(ctx, input, scales):
        scales = scales.tolist()[-2:]
        return nn.functional.interpolate(input, scale_factor=scales, mode="bicubic", align_corners=False)


class SuperResolutionNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, kernel_size=9, padding=4)
        self.conv2 = nn.Conv2d(64, 32, kernel_size=1, padding=0)
        self.conv3 = nn.Conv2d(32, 3, kernel_size=5, padding=2)
        self.relu = nn.ReLU()

    def forward(self, x, upscale_factor):
        x = NewInterpolate.apply(x, upscale_factor)
        out = self.relu(self.conv1(x))
        out = self.relu(self.conv2(out))
        return self.conv3(out)


def init_torch_model():
    torch.manual_seed(0)
    return SuperResolutionNet().eval()


if __name__ == "__main__":
    factor = torch.tensor([1, 1, 3, 3], dtype=torch.float)
    with torch.no_grad():
        torch.onnx.export(
            init_torch_model(),
            (torch.randn(1, 3, 32, 32), factor),
            sys.argv[1] if len(sys.argv) > 1 else "super_resolution.onnx",
            opset_version=11,
            input_names=["input", "factor"],
            output_names=["output"],
        )
