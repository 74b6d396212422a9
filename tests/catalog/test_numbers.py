"""Python numbers beside tensors: the type of the result is PyTorch's, on either side of the operator."""

from __future__ import annotations

import pytest
import torch
from roundtrip import travel


class Arithmetic(torch.nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        number = self.number
        results = [x + number, x * number, number / x, x // number, number // x, x > number]
        return results if x.dtype == torch.bool else [*results, number - x, x - number, x % number, number % x]


@pytest.mark.quick("torch.bool--3", "torch.int64--3", every=3)
@pytest.mark.parametrize("number", [2.5, -3], ids=str)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16], ids=str)
def test_arithmetic(number: float, dtype: torch.dtype) -> None:
    x = torch.tensor([1, 1, 1] if dtype == torch.bool else [1, 2, 7]).to(dtype)
    travel(Arithmetic(number), (x,)).check(x, rtol=2e-3)


@pytest.mark.quick(every=3)
@pytest.mark.parametrize(
    "dtypes", [(torch.int32, torch.int64), (torch.int64, torch.float32), (torch.float32, torch.int64)]
)
def test_tensors_of_two_types(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x**y, torch.searchsorted(x, y), torch.bucketize(x, y, right=True)

    x, y = (torch.tensor([1, 2, 5]).to(dtype) for dtype in dtypes)
    travel(model, (x, y)).check(x, y)


def test_numbers_that_depend_on_data() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        number, mean = x.argmax().item(), x.mean().item()
        return (x > 0) * number, (x > 0) * mean, x.long() ** number, x.int() ** number, x.double() ** number

    travel(model, (torch.tensor([1.0, -2.0, 0.5, 3.0]),)).check(torch.tensor([1.0, -2.0, 4.5, 3.0]))
