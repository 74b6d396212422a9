"""Super resolution whose upsampling factor is an input of the graph.

A size that depends on a tensor's contents is unknown while the model is captured, and ``interpolate`` wants a Python
number, which the capture would freeze. So the enlargement is an operator: torch code for eager mode, a *fake* that
makes two new dynamic sizes, and a translation to ONNX ``Resize`` with its scales taken from the tensor.

    opbridge export examples/tutorial/super_resolution.py:model -o build/super_resolution
"""

import torch
from onnxscript import FLOAT
from onnxscript import opset18 as op
from torch import Tensor, nn

import opbridge


def enlarged(size: int, factor: Tensor) -> int:
    """ONNX rounds size * factor down in float32, whatever the image's type; 10 * 1.3 is 13 there and 12 in float64."""
    return int(torch.floor(factor.to(torch.float32) * size))


@torch.library.custom_op("superres::enlarge", mutates_args=())
def enlarge(image: Tensor, factor: Tensor) -> Tensor:
    """Enlarge (batch, channels, height, width) by ``factor``, a float tensor of one element: bicubic, half-pixel."""
    height, width = enlarged(image.shape[2], factor), enlarged(image.shape[3], factor)
    scale = factor.item()
    return torch.ops.aten.upsample_bicubic2d(image, [height, width], False, scale, scale)


@enlarge.register_fake
def _(image: Tensor, factor: Tensor) -> Tensor:
    context = torch.library.get_ctx()
    height, width = context.new_dynamic_size(min=1), context.new_dynamic_size(min=1)
    return image.new_empty(image.shape[0], image.shape[1], height, width)


@opbridge.translation("superres::enlarge")
def enlarge_to_resize(image, factor):
    """The same in ONNX: the factor becomes the scales of the last two axes."""
    factor = op.Reshape(op.Cast(factor, to=FLOAT.dtype), op.Constant(value_ints=[1]))
    scales = op.Concat(op.Constant(value_floats=[1.0, 1.0]), factor, factor, axis=0)
    return op.Resize(
        image, None, scales, mode="cubic", cubic_coeff_a=-0.75, coordinate_transformation_mode="half_pixel"
    )


class SuperResolution(nn.Module):
    """SRCNN: enlarge, then sharpen with three convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, kernel_size=9, padding=4)
        self.conv2 = nn.Conv2d(32, 16, kernel_size=1)
        self.conv3 = nn.Conv2d(16, 3, kernel_size=5, padding=2)

    def forward(self, image, factor):
        # A request for a factor of 1000 would exhaust the memory, and a negative one has no meaning.
        x = enlarge(image, factor.clamp(1, 4))
        x = self.conv1(x).relu()
        x = self.conv2(x).relu()
        return self.conv3(x)


def model():
    torch.manual_seed(0)
    return {
        "model": SuperResolution().eval(),
        "args": (torch.rand(2, 3, 12, 16), torch.tensor([2.0])),
        "dynamic_shapes": {
            "image": {0: torch.export.Dim("batch"), 2: torch.export.Dim("height"), 3: torch.export.Dim("width")},
            "factor": None,
        },
        "input_names": ["image", "factor"],
        "output_names": ["enlarged"],
    }
