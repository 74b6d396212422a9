"""Shifts of bytes: the exercise of the tutorial.

torch.onnx maps ``<<`` and ``>>`` of uint8 to operators whose result is int8. opbridge has a mapping to ``BitShift``, so
that nothing needs to be declared.

    opbridge export examples/tutorial/shift.py:model -o build/shift
"""

import torch


class Shift(torch.nn.Module):
    def forward(self, value, places):
        return value << places, value >> places


def model():
    value = torch.tensor([1, 3, 200, 255], dtype=torch.uint8)
    places = torch.tensor([0, 1, 2, 7], dtype=torch.uint8)
    count = torch.export.Dim("count")
    return {
        "model": Shift().eval(),
        "args": (value, places),
        "dynamic_shapes": {"value": {0: count}, "places": {0: count}},
        "input_names": ["value", "places"],
        "output_names": ["left", "right"],
    }
