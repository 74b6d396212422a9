"""``--engine none``: the ONNX model as the mappings write it, for engines that opbridge does not know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

import opbridge
from opbridge import legacy
from opbridge.errors import EngineError, InputError, UnsupportedOperatorError

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        return x * factor

    @staticmethod
    def symbolic(g, x, factor):
        return g.op("vendor::Scale", x, factor_f=factor, mode_s="fast")


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Scale.apply(x, 2.0).relu()


@pytest.fixture
def bridge() -> Iterator[None]:
    legacy.enable()
    yield
    legacy.disable()


@pytest.mark.usefixtures("bridge")
@pytest.mark.parametrize("engines", [(), ("none",)])
def test_nodes_of_an_unknown_engine_stay_as_they_are(engines: tuple[str, ...], tmp_path: Path) -> None:
    bundle = opbridge.export(
        Model().eval(), (X,), path=tmp_path / "b", engines=engines, dynamic_shapes={"x": {0: "rows"}}
    )
    assert bundle.verified is None
    assert bundle.verification is not None
    assert bundle.verification["verdict"] == "exported, not run"
    graph = onnx.load(bundle.path / "model.onnx").graph
    assert [(node.domain, node.op_type) for node in graph.node] == [("vendor", "Scale"), ("", "Relu")]
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in graph.node[0].attribute}
    assert attributes == {"factor": 2.0, "mode": b"fast"}
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    with pytest.raises(InputError, match="holds no model for the engine 'onnxruntime', only for none"):
        opbridge.load(bundle.path)
    with pytest.raises(EngineError, match=r"model\.onnx was exported for no engine"):
        opbridge.load(bundle.path, engine="none")


@pytest.mark.usefixtures("bridge")
def test_an_engine_without_the_kernel_is_no_dead_end(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"no kernel for vendor::Scale") as raised:
        opbridge.export(Model().eval(), (X,), path=tmp_path / "b")
    for way in ("@opbridge.body_for('vendor::Scale')", "opbridge.kernel_for('vendor::Scale'", "--engine none"):
        assert way in raised.value.fix


def test_it_is_named_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'none' was named beside others"):
        opbridge.export(nn.ReLU(), (X,), path=tmp_path / "b", engines=("none", "onnxruntime"))
