"""Sizes that depend on data or on random numbers are unknown in the model, not those of one run."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import onnx_ir as ir  # noqa: E402
from onnxruntime import InferenceSession  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from opbridge.capture.capture import capture  # noqa: E402
from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.engines import get  # noqa: E402
from opbridge.ladder.climb import climb  # noqa: E402


class Selected(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.masked_select(x, x > 0)


class Kept(nn.Module):
    """Random rows, as in masked autoencoders and random samplers."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x[torch.rand(x.shape[0]) < 0.5]
        return rows, nn.functional.pad(rows, (0, 0, 1, 1))


class Cropped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[: torch.randint(1, 9, ()).item()]


class Repeated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.repeat_interleave(x, torch.randint(0, 3, (x.shape[0],)), dim=0)


class Distinct(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.unique(x.round())


@pytest.mark.quick("Selected", every=3)
@pytest.mark.parametrize("model", [Selected, Kept, Cropped, Repeated, Distinct])
def test_unknown_sizes(model: type[nn.Module]) -> None:
    captured = capture(model(), (torch.randn(32, 3),))
    climbed = climb(captured, Catalog.load(), [get("onnxruntime")]).models["onnxruntime"]
    for output in climbed.graph.outputs:
        assert isinstance(output.shape[0], ir.SymbolicDim), output
        assert list(output.shape[1:]) == [3][: len(output.shape) - 1]
    session = InferenceSession(ir.to_proto(climbed).SerializeToString(), providers=["CPUExecutionProvider"])
    runs = [session.run(None, {"x": torch.randn(32, 3).numpy()}) for _ in range(12)]
    assert all(len({len(run[place]) for run in runs}) > 1 for place in range(len(runs[0])))
