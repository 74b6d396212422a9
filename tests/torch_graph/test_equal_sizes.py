"""``torch_graph/equal_sizes.py``: a size that a model requires to be equal to another one is written as that one."""

import pytest
import torch
from roundtrip import travel
from torch.nn import functional as F
from torch.utils._sympy.functions import Max, Min


class Padded(torch.nn.Module):
    """Pads short inputs with ones, and requires that there are as many frames as without this."""

    def forward(self, x):
        frames = (x.shape[1] + 3) // 4
        if x.shape[1] <= 16:
            x = F.pad(x, (0, 17 - x.shape[1]), value=1.0)
        y = F.pad(x, (2, 4 * frames - x.shape[1] + 2)).unfold(1, 8, 4)
        return self.checked(y, frames)

    def checked(self, y, frames):
        """The frames, if they are as many as expected."""
        if y.shape[1] != frames:
            raise ValueError(f"{y.shape[1]} frames, {frames} expected")
        return y.softmax(1)


class Cut(torch.nn.Module):
    """Takes from one input as many elements as the other has, which must not be more."""

    def forward(self, x, y):
        x = x[:, : y.shape[1]]
        assert x.shape[1] == y.shape[1], "x is too short"
        return torch.cat([x, y])


@pytest.mark.parametrize(
    ("model", "inputs", "sizes"),
    [
        (Padded(), [torch.randn(2, 40)], [(15,), (17,), (90,)]),
        (Cut(), [torch.randn(2, 9), torch.randn(3, 5)], [(12, 12), (30, 2)]),
    ],
)
def test_a_size_that_is_checked_is_the_expected_one(model, inputs, sizes):
    shapes = tuple({1: name} for name, _ in zip("nm", inputs, strict=False))
    trip = travel(model, tuple(inputs), dynamic_shapes=shapes)
    (result,) = trip.captured.program.graph.output_node().args[0]
    for size in result.meta["val"].shape:
        assert not (isinstance(size, torch.SymInt) and size.node.expr.atoms(Max, Min))
    for chosen in sizes:
        trip.check(*(torch.randn(x.shape[0], size) for x, size in zip(inputs, chosen, strict=True)))
