"""``torch.tensor`` of a list of dynamic sizes and of tensors with one element is captured as operators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog


def of_types(x: Tensor) -> Tensor:
    return torch.LongTensor([x.shape[0], x.shape[0] + 1, 0]) * torch.FloatTensor((x.shape[0], 1, 2))


MODELS: dict[str, Callable[[Tensor], Tensor]] = {
    "tensors": lambda x: torch.tensor([x[0, 0], x[1, 1]]),
    "tensors of one element": lambda x: torch.tensor([x.amax().reshape(1, 1), 2.0]),
    "an index and numbers": lambda x: torch.tensor([x.argmax(), 1, True]),
    "an index and a float": lambda x: torch.tensor([x.argmax(), 1.5]),
    "nested": lambda x: torch.tensor([[x.mean(), 2.0], [3, x[0, 0]]], dtype=torch.float64),
    "sizes and tensors": lambda x: torch.as_tensor((x.shape[0], x.sum()), device=x.device),
    "half precision and a float": lambda x: torch.tensor([x.half().amax(), 1.0]),
    "new_tensor of a size": lambda x: x + x.new_tensor(x.shape[0]),
    "new_tensor of sizes": lambda x: x + x.new_tensor([x.shape[0], 1, 2]),
    "new_tensor of tensors": lambda x: x.double().new_tensor([x.sum(), 1]),
    "LongTensor and FloatTensor": of_types,
}


@pytest.mark.quick("tensors of one element", "new_tensor of sizes", "LongTensor and FloatTensor")
@pytest.mark.parametrize("name", MODELS)
def test_numbers_stay_dynamic(name: str) -> None:
    model = MODELS[name]
    captured = capture(model, (torch.randn(7, 3),), dynamic_shapes=({0: "n"},), rewrites=Catalog.load().rewrites())
    program = captured.program.module()
    for size in (7, 2, 12):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x), model(x))
