"""A loop whose trip count is an input, kept as one ONNX ``Loop``.

A Python ``for`` over a number is unrolled. ``torch.while_loop`` keeps it: the condition and the body are functions of
the values carried from one round to the next.

    opbridge export examples/tutorial/loop.py:model -o build/loop
"""

import torch
from torch import nn


class Refine(nn.Module):
    """Apply one small residual layer ``steps`` times (0 to 16)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, features)

    def forward(self, x, steps):
        # A mistaken trip count must not keep a server busy for hours.
        steps = steps.clamp(0, 16)

        def unfinished(step, steps, x):
            return step < steps

        def refine(step, steps, x):
            # What is carried must be a new tensor each time, also what does not change.
            return step + 1, steps.clone(), x + 0.5 * torch.tanh(self.layer(x))

        _, _, refined = torch.while_loop(unfinished, refine, (torch.zeros_like(steps), steps, x))
        return refined


def model():
    torch.manual_seed(0)
    return {
        "model": Refine(8).eval(),
        "args": (torch.randn(3, 8), torch.tensor(4)),
        "dynamic_shapes": {"x": {0: torch.export.Dim("rows")}, "steps": None},
        "input_names": ["x", "steps"],
        "output_names": ["refined"],
    }
