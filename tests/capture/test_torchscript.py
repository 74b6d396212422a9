"""TorchScript modules: each is captured, and computes what TorchScript computes, at other sizes too."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import opbridge
from opbridge.capture.capture import capture
from opbridge.errors import CaptureError


class Gate(nn.Module):
    """Submodules in a container, numbers, lists, a loop, a condition on a size, and types."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(3, 6, 3, padding=1), nn.BatchNorm1d(6), nn.Dropout(0.1))
        self.repeats = 2
        self.step = 0.5

    def forward(self, x: Tensor, scale: float = 2.0) -> tuple[Tensor, Tensor]:
        a, b = self.layers(x).chunk(2, dim=1)
        parts = []
        for number in range(self.repeats):
            parts.append(a * torch.sigmoid(b) * scale + number * self.step)
        z = torch.cat(parts, 1).to(torch.float64)
        if z.size(1) > 4 and z.dim() == 3:
            z = z.mean(2, keepdim=True)
        return z.to(x.dtype), z.sum((1, 2)).view(x.shape[0], -1) / math.sqrt(x.shape[2])


class Loops(nn.Module):
    """A loop with a limit, one without, an exit, and a condition on a value."""

    def forward(self, x: Tensor) -> Tensor:
        count = 0
        while count < 3:
            x = x * 2 + count
            count += 1
        for number in range(4):
            if number > 1:
                break
            x = x - number
        if x.sum() > 0:
            return x.relu()
        return -x


class Sizes(nn.Module):
    """What a trace makes of arithmetic on sizes: tensors that are numbers again."""

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[2] // 2
        return x[:, :, :half].reshape(x.shape[0], -1, half) * (x.shape[0] + 1)


class Containers(nn.Module):
    """Containers that are read and changed."""

    def forward(self, x: Tensor) -> Tensor:
        table = {"two": 2.0}
        factors = [table.get("two", 3.0), table.get("three", 3.0), math.log(8, 2)]
        factors.append(float(len(factors)))
        for number, factor in enumerate(factors):
            x = x * factor + number
        return x


class Sorting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        order = [3, 1]
        order.sort()
        return x * order[0]


class Recurrent(nn.Module):
    """A tensor as default, an exported method, and an error whose text contains numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.state = torch.zeros(0)
        self.count = 0

    @torch.jit.export
    def restart(self) -> None:
        self.state = torch.zeros(0)
        self.count = 0

    def forward(self, x: Tensor, start: Tensor = torch.ones(1)) -> Tensor:  # noqa: B008
        if x.dim() != 3:
            raise ValueError(f"expected 3 dimensions, got {x.dim()}")
        if self.count == 0:
            self.state = start * x[:, :, 0]
        self.state = torch.tanh(self.state + x.sum(2))
        self.count += 1
        return self.state


class Restarted(nn.Module):
    """Calls a method of a TorchScript module, and then the module twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.jit.script(Recurrent())

    def forward(self, x: Tensor) -> Tensor:
        self.inner.restart()
        return self.inner(x) + self.inner(2 * x)


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return self.inner(x.exp())


X = torch.randn(2, 3, 4)
MODULES: dict[str, Callable[[], nn.Module]] = {
    "a script": lambda: torch.jit.script(Gate().eval()),
    "a trace": lambda: torch.jit.trace(Gate().eval(), X),
    "a frozen script": lambda: torch.jit.freeze(torch.jit.script(Gate().eval())),
    "containers": lambda: torch.jit.script(Containers()),
    "loops": lambda: torch.jit.script(Loops()),
    "a trace of sizes": lambda: torch.jit.trace(Sizes(), X),
    "methods": Restarted,
    "inside a model": lambda: Outer(torch.jit.script(Gate().eval())).eval(),
}


@pytest.mark.quick("sizes", every=9)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_it_computes_what_torchscript_computes(name: str, tmp_path: Path) -> None:
    module = MODULES[name]()
    bundle = opbridge.export(module, (X,), path=tmp_path / "bundle", dynamic_shapes={"x": {0: "n", 2: "m"}})
    assert bundle.verified
    session = opbridge.load(tmp_path / "bundle")
    assert session.inputs[0].shape == ("n", 3, "m")
    for x in (X - 3, torch.randn(5, 3, 7) + 4):
        with torch.no_grad():
            expected = module(x)
        results = session.run({"x": x.numpy()}).values()
        for found, tensor in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_allclose(found, tensor.numpy(), rtol=1e-4, atol=1e-5)


def test_a_file_that_torch_jit_saved_keeps_the_names_of_its_inputs_and_the_module_is_as_before(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(Gate().eval()), tmp_path / "gate.pt")
    loaded = torch.jit.load(tmp_path / "gate.pt")
    model = Outer(loaded)
    captured = capture(model.eval(), (X,))
    assert model.inner is loaded
    assert any(name.startswith("inner.layers.0.") for name in captured.program.state_dict)
    assert capture(loaded, (X,)).input_names == ("x",)


@pytest.mark.parametrize("module", [nn.LSTM(4, 5), Sorting()], ids=["several methods", "a list that is sorted"])
def test_what_has_no_counterpart_is_refused(module: nn.Module) -> None:
    with pytest.raises(CaptureError, match="TorchScript module"):
        capture(torch.jit.script(module), (X,))


def test_an_error_of_torchscript_keeps_its_text() -> None:
    with pytest.raises(CaptureError, match="expected 3 dimensions, got 2"):
        capture(Restarted().inner, (X[0],))
