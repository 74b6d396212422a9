"""A branch on the data, kept as one ONNX ``If``.

``torch.cond`` keeps both branches; they must return tensors of the same shapes and dtypes. A Python ``if`` on a tensor
is converted to it while the model is captured (docs/control-flow.md).

    opbridge export examples/branch.py:model -o build/branch
"""

import torch
from torch import nn


class DayAndNight(nn.Module):
    """Bright images take a cheap path, dark ones a wider one."""

    def __init__(self) -> None:
        super().__init__()
        self.day = nn.Conv2d(3, 4, kernel_size=1)
        self.night = nn.Sequential(
            nn.Conv2d(3, 16, kernel_size=5, padding=2), nn.ReLU(), nn.Conv2d(16, 4, kernel_size=1)
        )

    def forward(self, image):
        return torch.cond(image.mean() > 0, lambda x: self.day(x), lambda x: self.night(x), (image,))


def model():
    torch.manual_seed(0)
    return {
        "model": DayAndNight().eval(),
        "args": (torch.randn(2, 3, 8, 8),),
        "dynamic_shapes": {"image": {0: torch.export.Dim("batch")}},
        "input_names": ["image"],
        "output_names": ["features"],
    }
