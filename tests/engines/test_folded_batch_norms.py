"""Batch normalizations after matrix products, with a Reshape or a Transpose between both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import nn

import opbridge
from opbridge.engines.passes.folded_batch_norms import FoldedBatchNormsPass

TEMPLATE = """<ir_version: 8, opset_import: ["": 18]>
g (float[2, 3, 2] x) => (float[{shape}] y) <float[2, 2] w = {{1.0, 2.0, 3.0, 4.0}}, float[2] c = {{0.5, -1.0}},
float[3, 2] d = {{1.0, 2.0, 3.0, 4.0, 5.0, 6.0}}, int64[2] rows = {{-1, 2}}, int64[2] half = {{-1, 4}},
float[2] scale = {{1.5, -2.0}}, float[2] b = {{0.5, 1.0}}, float[2] mean = {{0.1, -0.2}}, float[2] var = {{1.0, 4.0}},
float[2, 3, 2] p, float[2, 3, 2] s, float[2, 2, 3] t, float[3, 2, 2] o, float[6, 2] r, float[3, 4] h>
{{ p = MatMul(x, w) {before} y = BatchNormalization<{attributes}>({input}, scale, b, mean, var) }}"""
CHAINS = {
    "transposed": ("s = Add(p, c) t = Transpose<perm = [0, 2, 1]>(s)", "t", True),
    "reshaped, without a bias": ("r = Reshape(p, rows)", "r", True),
    "read twice": ("s = Add(p, c) t = Transpose<perm = [0, 2, 1]>(s) z = Abs(s)", "t", False),
    "other columns": ("h = Reshape(p, half)", "h", False),
    "another axis": ("o = Transpose<perm = [1, 0, 2]>(p)", "o", False),
    "a bias for each row": ("s = Add(p, d) t = Transpose<perm = [0, 2, 1]>(s)", "t", False),
    "no product": ("t = Transpose<perm = [0, 2, 1]>(x)", "t", False),
}
SHAPES = {"t": "2, 2, 3", "r": "6, 2", "h": "3, 4", "o": "3, 2, 2"}


def model_with(before: str, value: str, attributes: str = "epsilon = 0.1") -> ir.Model:
    return ir.from_onnx_text(TEMPLATE.format(before=before, input=value, shape=SHAPES[value], attributes=attributes))


def result_of(model: ir.Model) -> np.ndarray:
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    return session.run(None, {"x": np.arange(12, dtype=np.float32).reshape(2, 3, 2)})[0]


@pytest.mark.parametrize("name", CHAINS)
def test_only_what_multiplies_columns_is_folded(name: str) -> None:
    before, value, changes = CHAINS[name]
    model = model_with(before, value)
    assert FoldedBatchNormsPass()(model).modified is changes
    assert ("BatchNormalization" in [node.op_type for node in model.graph]) is not changes
    if changes:
        np.testing.assert_allclose(result_of(model), result_of(model_with(before, value)), 1e-6)


def test_the_statistics_of_a_batch_are_not_folded() -> None:
    assert not FoldedBatchNormsPass()(model_with("r = Reshape(p, rows)", "r", "training_mode = 1")).modified


def test_an_export_has_no_batch_normalization_after_linear(tmp_path: Path) -> None:
    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
            self.other, self.last = nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5)
            for norm in (self.norm, self.last):
                nn.init.normal_(norm.running_mean)
                nn.init.uniform_(norm.running_var, 0.5, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(self.linear(x).transpose(1, 2)).relu()
            z = self.other(y.transpose(1, 2))
            return self.last(z.flatten(0, 1)).reshape_as(z)

    bundle = opbridge.export(
        Norms().eval(), (torch.randn(2, 3, 4),), dynamic_shapes=({0: "batch", 1: "length"},), path=tmp_path / "b"
    )
    assert bundle.verified
    operators = [node.op_type for node in ir.load(bundle.path / "model.onnx").graph]
    assert "BatchNormalization" not in operators
    assert operators.count("MatMul") == operators.count("Add") == operators.count("Gemm") == 1
