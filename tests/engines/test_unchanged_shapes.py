"""Reshape and Expand to the shape that a tensor has."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest
import torch

import opbridge
from opbridge.engines.passes.unchanged_shapes import UnchangedShapesPass

TEMPLATE = """<ir_version: 8, opset_import: ["": 18]>
g (float[{before}] x, int64[2] sizes) => (float[{after}] y)
<float[{before}] a, float[{after}] t> {{ a = Abs(x) t = {operator}(a, sizes) y = Neg(t) }}"""


@pytest.mark.parametrize("operator", ["Reshape", "Expand"])
@pytest.mark.parametrize(
    ("before", "after", "changes"), [("2, n", "2, n", True), ("2, n", "2, m", False), ("2, 1", "2, 3", False)]
)
def test_only_what_changes_nothing_is_removed(operator: str, before: str, after: str, changes: bool) -> None:
    model = ir.from_onnx_text(TEMPLATE.format(before=before, after=after, operator=operator))
    assert UnchangedShapesPass()(model).modified is changes
    assert (operator in [node.op_type for node in model.graph]) is not changes


@pytest.mark.slow
def test_an_export_has_none(tmp_path: Path) -> None:
    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            attended = torch.nn.functional.scaled_dot_product_attention(x, x, x)
            return attended.reshape(x.shape[0], -1, x.shape[2], 4).transpose(1, 2)

    bundle = opbridge.export(
        Attention(), (torch.randn(2, 3, 5, 4),), dynamic_shapes=({0: "batch", 2: "length"},), path=tmp_path / "b"
    )
    (file,) = bundle.path.glob("*.onnx")
    assert "Reshape" not in [node.op_type for node in ir.load(file).graph]


EXPANDED = """<ir_version: 8, opset_import: ["": 18]>
g (float[n, 4] x, float[1, 4] w, int64[2] sizes) => (float[n, 4] y)
<float[n, 4] t> {{ t = Expand(w, sizes) y = {reader} }}"""


@pytest.mark.parametrize(
    ("reader", "changes"), [("Mul(x, t)", True), ("Mul(t, w)", False), ("Mul(t, t)", False), ("Abs(t)", False)]
)
def test_an_expansion_before_a_node_that_broadcasts_is_removed(reader: str, changes: bool) -> None:
    model = ir.from_onnx_text(EXPANDED.format(reader=reader))
    assert UnchangedShapesPass()(model).modified is changes
    assert ("Expand" in [node.op_type for node in model.graph]) is not changes
