"""What torch.onnx leaves wrong in a translated model: constants that no graph owns, fused weights, and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import numpy as np  # noqa: E402
import onnx_ir as ir  # noqa: E402
from onnxruntime import InferenceSession  # noqa: E402

import opbridge  # noqa: E402
from opbridge.capture.capture import capture  # noqa: E402
from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.engines import get  # noqa: E402
from opbridge.engines.passes.fixed_ranks import FixedRanksPass  # noqa: E402
from opbridge.engines.passes.owned_constants import OwnedConstantsPass  # noqa: E402
from opbridge.ladder.climb import climb  # noqa: E402


def run(model: ir.Model, *arrays: np.ndarray) -> list[np.ndarray]:
    session = InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([item.name for item in session.get_inputs()], arrays, strict=True)))


def exported(module: torch.nn.Module, *args: torch.Tensor, dynamic: Sequence[str] = ()) -> ir.Model:
    shapes = tuple({0: name} for name in dynamic) or None
    captured = capture(module.eval(), args, dynamic_shapes=shapes)
    return climb(captured, Catalog.load(), [get("onnxruntime")]).models["onnxruntime"]


class TwiceClamped(torch.nn.Module):
    """The query, key and value of a linear layer with clamped inputs, as in Gemma's vision encoder."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.clamp(-1.0, 1.0).clamp(-0.5, 2.0), x.clamp(-3.0, 1.5).clamp(-0.7, 2.0)


def test_each_chain_of_clamps_keeps_its_limits() -> None:
    x = torch.linspace(-4, 4, 9)
    first, second = run(exported(TwiceClamped(), x), x.numpy())
    assert (first.min(), first.max()) == (-0.5, 1.0)
    assert (second.min(), second.max()) == (np.float32(-0.7), 1.5)


@pytest.mark.quick("layer1-dtype1", every=3)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layer", [torch.nn.Conv2d(3, 4, 3), torch.nn.ConvTranspose2d(3, 4, 3)])
def test_a_normalization_fused_into_a_layer_that_has_no_kernel_in_its_type(
    layer: torch.nn.Module, dtype: torch.dtype, tmp_path: Path
) -> None:
    module = torch.nn.Sequential(layer, torch.nn.BatchNorm2d(4)).to(dtype).eval()
    module[1].running_mean.normal_()
    module[1].running_var.uniform_(0.5, 2)
    bundle = opbridge.export(module, (torch.randn(2, 3, 6, 6).to(dtype),), path=tmp_path / "b")
    assert bundle.verified, bundle


def test_a_constant_without_a_graph_gets_a_name_of_its_own() -> None:
    model = ir.from_onnx_text('<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (y) { y = Add(x, x) }')
    for number in (1.0, 2.0):
        value = ir.Value(name="k", const_value=ir.tensor(np.float32([number])))
        model.graph.initializers["k"] = value
        model.graph[0].replace_input_with(int(number) - 1, value)
    assert OwnedConstantsPass()(model).modified
    assert sorted(model.graph.initializers) == ["k", "k_1"]
    assert run(model, np.zeros(2, np.float32))[0] == 3.0
    assert not OwnedConstantsPass()(model).modified


SQUEEZED = '<ir_version: 8, opset_import: ["": 18]> g (float[{shape}] x) => (y) {{ s = Squeeze(x) y = Neg(s) }}'


@pytest.mark.parametrize(
    ("shape", "given", "expected"), [("n, 1, 3", (1, 1, 3), (1, 3)), ("n, 3", (1, 3), (1, 3)), ("1, 3", (1, 3), (3,))]
)
def test_a_dynamic_axis_is_not_squeezed(shape: str, given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    model = ir.from_onnx_text(SQUEEZED.format(shape=shape))
    assert FixedRanksPass()(model).modified == ("n" in shape)
    assert run(model, np.zeros(given, np.float32))[0].shape == expected
    assert not FixedRanksPass()(model).modified


class Decoder(torch.nn.Module):
    """One step of a text recognizer: the most probable character of each item of the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(x.size(0), 3, dtype=torch.long)
        found[:, 1] = x.mean(2, keepdim=True).squeeze().argmax(-1) + 1
        return found


@pytest.mark.quick("2", every=3)
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_axes_behind_a_squeeze_are_right_at_batch_1(batch: int) -> None:
    model = exported(Decoder(), torch.randn(3, 5, 4), dynamic=["batch"])
    x = torch.randn(batch, 5, 4)
    assert np.array_equal(run(model, x.numpy())[0], Decoder()(x).numpy())


def test_a_squeezed_output_has_the_rank_of_pytorch() -> None:
    class Squeezed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean(2, keepdim=True).squeeze()

    model = exported(Squeezed(), torch.randn(3, 5, 4), dynamic=["batch"])
    for batch in (1, 2):
        x = torch.randn(batch, 5, 4)
        assert run(model, x.numpy())[0].shape == Squeezed()(x).shape
