"""Products of transposed matrices and vectors, which ONNX Runtime gets wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")

import numpy as np  # noqa: E402
import onnx_ir as ir  # noqa: E402

import opbridge  # noqa: E402
from opbridge.engines.passes.transposed_vectors import TransposedVectorsPass  # noqa: E402

SCALED = """<ir_version: 8, opset_import: ["": 18]>
g (float[n, m] x, float[n] v) => (y) <float s = {{2.0}}, float[1, 1] o = {{3.0}}>
{{ t = Transpose<perm = [1, 0]>(x) a = {}(t, s) b = Div(a, o) y = MatMul(b, v) }}"""
TEMPLATE = """<ir_version: 8, opset_import: ["": 18]>
g (float[{matrix}] x, float[{other}] v) => (y) {{ t = Transpose<perm = [{order}]>(x) y = MatMul(t, v) }}"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exported_products_are_right(dtype: torch.dtype, tmp_path: Path) -> None:
    class Products(torch.nn.Module):
        def forward(self, x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.mv(x[0].T, v), x.mT @ v, v @ x, (0.5 * x.mT / 3) @ v, x.mT.exp() @ v

    inputs = (torch.randn(2, 5, 3, dtype=dtype), torch.randn(5, dtype=dtype))
    bundle = opbridge.export(Products(), inputs, path=tmp_path / "b", verify=False)
    found = opbridge.load(bundle.path)(*(tensor.numpy() for tensor in inputs))
    for result, expected in zip(found, Products()(*inputs), strict=True):
        np.testing.assert_allclose(result, expected.numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("matrix", "order", "other", "changes"),
    [
        *(("5, 3", "1, 0", "5", True), ("2, 5, 3", "0, 2, 1", "5", True), ("n, m", "1, 0", "n", True)),
        *(("5, 3", "1, 0", "5, 2", False), ("5, 2, 3", "1, 2, 0", "5", False)),
    ],
)
def test_only_what_is_fused_is_changed(matrix: str, order: str, other: str, changes: bool) -> None:
    model = ir.from_onnx_text(TEMPLATE.format(matrix=matrix, order=order, other=other))
    assert TransposedVectorsPass()(model).modified is changes
    (product,) = (node for node in model.graph if node.op_type == "MatMul")
    assert [value.name for value in product.inputs] == (["v", "x"] if changes else ["t", "v"])


@pytest.mark.parametrize(("operator", "changes"), [("Mul", True), ("Add", False)])
def test_numbers_between_both(operator: str, changes: bool) -> None:
    model = ir.from_onnx_text(SCALED.format(operator))
    assert TransposedVectorsPass()(model).modified is changes
    assert [node.op_type for node in model.graph][-1] == ("Squeeze" if changes else "MatMul")
    assert model.graph.outputs[0].name == "y"
    x, v = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1.0, -2.0], np.float32)
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    scaled = (x.T * 2 if operator == "Mul" else x.T + 2) / 3
    np.testing.assert_allclose(session.run(None, {"x": x, "v": v})[0], scaled @ v, 1e-6)
