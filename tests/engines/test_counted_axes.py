"""Reductions of empty tensors: their axes are counted from the front."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import numpy as np  # noqa: E402
import onnx_ir as ir  # noqa: E402
from onnxruntime import InferenceSession  # noqa: E402

from opbridge.engines.passes.counted_axes import CountedAxesPass  # noqa: E402

TEMPLATE = '<ir_version: 8, opset_import: ["": 18]> g (float[{shape}] x) => (y) {{ {body} }}'
SUM = "a = Constant<value_ints = [-1]>() y = ReduceSum<keepdims = 0>(x, a)"
ARG_MAX = "y = ArgMax<axis = -1, keepdims = 1>(x)"


def made(shape: str, body: str) -> ir.Model:
    return ir.from_onnx_text(TEMPLATE.format(shape=shape, body=body))


def run(model: ir.Model, *sizes: int) -> np.ndarray:
    session = InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.zeros(sizes, np.float32)})[0]


@pytest.mark.parametrize(("body", "shape"), [(SUM, (0, 4)), (ARG_MAX, (0, 4, 1))])
@pytest.mark.parametrize("sizes", ["0, 4, 5", "n, 4, 5"])
def test_an_empty_tensor_is_reduced_to_the_right_shape(body: str, shape: tuple[int, ...], sizes: str) -> None:
    model = made(sizes, body)
    assert CountedAxesPass()(model).modified
    assert run(model, 0, 4, 5).shape == shape
    assert not CountedAxesPass()(model).modified


@pytest.mark.parametrize("body", [SUM, ARG_MAX])
def test_a_tensor_with_elements_stays_as_it_is(body: str) -> None:
    assert not CountedAxesPass()(made("3, 4, 5", body)).modified


def test_an_exported_model_takes_an_empty_input() -> None:
    from opbridge.capture.capture import capture
    from opbridge.catalog.declare.catalog import Catalog
    from opbridge.engines import get
    from opbridge.ladder.climb import climb

    class Sums(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum(-1)

    captured = capture(Sums(), (torch.zeros(0, 4, 5),))
    model = climb(captured, Catalog.load(), [get("onnxruntime")]).models["onnxruntime"]
    assert run(model, 0, 4, 5).shape == (0, 4)
