"""A library's operator: torchvision's modulated DeformConv2d, its offsets made by a convolution before it.

ONNX has had ``DeformConv`` since opset 19, so the plan raises the opset and says that this operator asked for it.

    opbridge export examples/tutorial/deform_conv.py:model -o build/deform_conv
"""

import torch
from torchvision.ops import DeformConv2d


class DeformableBlock(torch.nn.Module):
    """A 3x3 deformable convolution: every kernel point has an offset (y, x) and a weight (the mask) at each pixel."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.points = 3 * 3
        self.offset = torch.nn.Conv2d(channels_in, 3 * self.points, kernel_size=3, padding=1)
        self.conv = DeformConv2d(channels_in, channels_out, kernel_size=3, padding=1)

    def forward(self, x):
        made = self.offset(x)
        offset, mask = made[:, : 2 * self.points], made[:, 2 * self.points :].sigmoid()
        return self.conv(x, offset, mask).relu()


def model():
    torch.manual_seed(0)
    return {
        "model": DeformableBlock(3, 8).eval(),
        "args": (torch.randn(2, 3, 16, 20),),
        "dynamic_shapes": {
            "x": {
                0: torch.export.Dim("batch"),
                2: torch.export.Dim("height", min=4),
                3: torch.export.Dim("width", min=4),
            }
        },
        "input_names": ["x"],
        "output_names": ["features"],
    }
