"""RMS normalization as ONNX Runtime fuses it."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import onnxruntime
import torch
from roundtrip import travel
from torch import Tensor


class RootMeanSquare(torch.nn.Module):
    """The normalization of Llama and T5, as transformers writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def test_onnx_runtime_fuses_rms_normalization(tmp_path: Path) -> None:
    trip = travel(RootMeanSquare(), (torch.randn(3, 8),))
    assert ("Div" in trip.op_types, "Reciprocal" in trip.op_types) == (True, False)
    trip.check(torch.randn(3, 8))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    onnxruntime.InferenceSession(trip.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert [node.op_type for node in ir.load(tmp_path / "fused.onnx").graph] == ["SimplifiedLayerNormalization"]


def test_a_root_that_is_read_twice_keeps_its_inverse() -> None:
    class Twice(RootMeanSquare):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            inverse = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            return x * inverse, inverse

    trip = travel(Twice(), (torch.randn(3, 8),))
    assert "Reciprocal" in trip.op_types
