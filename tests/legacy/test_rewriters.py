"""MMDeploy's registries: what is declared for an engine is in force for it, in the block, and nowhere else."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
from places import EXAMPLES

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

from legacy_batches import any_domain_supported  # noqa: E402

import opbridge  # noqa: E402
from opbridge.capture.entry import load_file  # noqa: E402
from opbridge.errors import InputError  # noqa: E402
from opbridge.legacy import rewriters  # noqa: E402
from opbridge.legacy.rewriters import FunctionRewriter, ModuleRewriter, SymbolicRewriter, for_engine  # noqa: E402

pytestmark = pytest.mark.newest

EXAMPLE = EXAMPLES / "legacy" / "mmdeploy_rewrites.py"


@pytest.fixture
def example() -> Any:
    module = load_file(str(EXAMPLE))
    sys.modules[module.__name__] = module
    return module


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> tuple[FunctionRewriter, SymbolicRewriter, ModuleRewriter]:
    """Empty ones in the place of the process's."""
    fresh = FunctionRewriter(), SymbolicRewriter(), ModuleRewriter()
    for name, registry in zip(("FUNCTION_REWRITER", "SYMBOLIC_REWRITER", "MODULE_REWRITER"), fresh, strict=True):
        monkeypatch.setattr(rewriters, name, registry)
    return fresh


def operators(bundle: opbridge.Bundle) -> list[str]:
    return [node.op_type for node in onnx.load(bundle.path / "model.onnx").graph.node]


def test_the_example_for_onnxruntime_takes_the_default_rewrite_alone(example: Any, tmp_path: Path) -> None:
    bundle = example.export(tmp_path / "bundle", "onnxruntime")
    assert bundle.verified
    assert {"Clip", "GridSample", "Softplus"} <= set(operators(bundle))


def test_the_example_for_ncnn_takes_all_three(example: Any, tmp_path: Path) -> None:
    with any_domain_supported():  # As if ncnn were here, which has a layer for mmcv::grid_sampler.
        names = operators(example.export(tmp_path / "bundle", "ncnn"))
    assert {"Clip", "grid_sampler"} <= set(names)
    assert not {"GridSample", "Softplus", "Tanh"} & set(names)


def test_nothing_is_in_force_outside_the_block(example: Any, tmp_path: Path) -> None:
    model = example.model()["model"]
    with for_engine("ncnn") as active:
        assert type(active.replaced(model).activation) is example.HardMish
    assert type(model.activation) is example.Mish
    points = torch.rand(2, 2)
    assert torch.equal(example.distance2bbox(points, torch.zeros(2, 4), 1.0), torch.cat([points, points], 1))


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        return x * factor + 1

    @staticmethod
    def symbolic(g, x, factor):
        return g.op("mylib::Scale", x, factor_f=factor)


def test_an_autograd_function_gets_another_symbolic_and_its_own_back(registries: Any, tmp_path: Path) -> None:
    @registries[1].register_symbolic(f"{__name__}.Scale", arg_descriptors=["v", "f"], backend="one")
    def scale(ctx, g, x, factor):
        return g.op("theirs::Scale", x, factor_f=factor, engine_s=ctx.backend)

    class Model(torch.nn.Module):
        def forward(self, x):
            return Scale.apply(x, 2.0)

    own = vars(Scale)["symbolic"]
    found = {}
    for engine in ("one", "another"):
        with for_engine(engine):
            torch.onnx.export(Model(), (torch.rand(2),), tmp_path / "model.onnx", verbose=False)
        found[engine] = onnx.load(tmp_path / "model.onnx").graph.node[0]
    assert vars(Scale)["symbolic"] is own
    assert (found["one"].domain, found["another"].domain) == ("theirs", "mylib")
    assert sorted(attribute.name for attribute in found["one"].attribute) == ["engine", "factor"]


def test_a_registration_of_the_users_comes_back(registries: Any) -> None:
    from opbridge.legacy import torch_registry

    registries[1].register_symbolic("asinh", is_pytorch=True)(lambda g, x: g.op("theirs::Asinh", x))

    def own(g, x):
        return g.op("mylib::Asinh", x)

    torch.onnx.register_custom_op_symbolic("aten::asinh", own, 11)
    try:
        with for_engine("ncnn"):
            assert torch_registry.registered()["aten::asinh"][11] is not own
        assert torch_registry.registered()["aten::asinh"] == {11: own}
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::asinh", 11)
    with for_engine("ncnn"):
        pass
    assert "aten::asinh" not in torch_registry.registered()


def test_a_module_in_two_places_is_replaced_in_both(registries: Any) -> None:
    registries[2].register_rewrite_module(torch.nn.ReLU)(lambda module: torch.nn.GELU())
    shared = torch.nn.ReLU()
    model = torch.nn.Sequential(shared, torch.nn.Linear(2, 2), shared)
    with for_engine("ncnn") as active:
        active.replaced(model)
        assert type(model[0]) is torch.nn.GELU
        assert model[0] is model[2]
    assert model[0] is shared
    assert model[2] is shared


def test_an_engine_beats_the_default_and_a_context_comes_first_if_asked_for(registries: Any) -> None:
    @registries[0].register_rewriter("mylib.f")
    def for_all(x):
        return "all"

    @registries[0].register_rewriter("mylib.f", backend="ncnn")
    def for_ncnn(ctx, x):
        return ctx.backend, ctx.cfg, ctx.origin_func(x)

    with for_engine("ncnn", {"a": 1}) as active:
        assert active.ops[0](lambda x: x + 1, 2) == ("ncnn", {"a": 1}, 3)
    with for_engine("tensorrt") as active:
        assert active.ops[0](lambda x: x + 1, 2) == "all"
    assert opbridge.catalog.declare.spec.specs_of(active.ops[0])[0].rung == "rewrite"


def test_a_context_is_found_by_name_and_outside_a_rewriter_is_an_error(registries: Any) -> None:
    with pytest.raises(InputError, match="no rewriter is running"):
        registries[0].get_context()

    @registries[0].register_rewriter("mylib.f")
    def rewritten(x):
        assert registries[0].get_context("mylib.f") is registries[0].get_context()
        with pytest.raises(InputError, match=r"no rewriter of 'mylib\.g' is running"):
            registries[0].get_context("mylib.g")
        return registries[0].get_context("mylib.f").origin_func(x)

    with for_engine("ncnn") as active:
        assert active.ops[0](lambda x: x + 1, 2) == 3


def test_what_is_not_installed_is_left_out_with_a_warning(registries: Any) -> None:
    registries[2].register_rewrite_module("no.such.Module")(torch.nn.Identity)
    registries[1].register_symbolic("no.such.Function")(lambda g, x: x)
    relu = torch.nn.ReLU()
    with contextlib.ExitStack() as stack:
        with pytest.warns(UserWarning, match=r"'no\.such\.Function' can't be imported, so nothing replaces it"):
            active = stack.enter_context(for_engine("ncnn"))
        with pytest.warns(UserWarning, match=r"'no\.such\.Module' can't be imported"):
            assert active.replaced(relu) is relu


class Align(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        return x * factor

    @staticmethod
    def symbolic(g, x, factor):
        return g.op("custom::Align", x)


align = Align.apply


def decode(x):
    return x + 1


def test_a_function_is_found_by_its_apply_and_every_export_in_the_block_is_rewritten(registries: Any) -> None:
    @registries[1].register_symbolic(f"{__name__}.align.__self__")
    def align__default(g, x, factor):
        return g.op("custom::Align2", x, factor_i=factor)

    @registries[0].register_rewriter(f"{__name__}.decode")
    def decode__default(x):
        return registries[0].get_context().origin_func(x) * 2

    class Model(torch.nn.Module):
        def forward(self, x):
            return align(decode(x), 3)

    def nodes():
        return [node.op_type for node in torch.onnx.export(Model(), (torch.rand(2),), None).model.graph]

    with for_engine("tensorrt"):
        assert nodes() == ["Add", "Mul", "Align2"]
    with opbridge.legacy.enable():
        assert nodes() == ["Add", "Align"]


@pytest.mark.quick("LSTM", every=3)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_rewriter_of_a_function_of_the_old_exporter_is_called_by_the_operators_that_call_it(
    kind: str, registries: Any
) -> None:
    @registries[0].register_rewriter("torch.onnx.symbolic_opset9._generic_rnn", backend="ncnn")
    def generic_rnn__ncnn(g, variant, input, initial_states, all_weights, *options, **others):
        return g.op(f"ncnn::{variant}", input, *all_weights[:2], outputs=3 if variant == "LSTM" else 2)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = getattr(torch.nn, kind)(3, 4)

        def forward(self, x):
            return self.layer(x)[0]

    def domains():
        nodes = torch.onnx.export(Model().eval(), (torch.rand(5, 1, 3),), None).model.graph
        return {node.domain for node in nodes if node.op_type == kind}

    with for_engine("ncnn"):
        assert domains() == {"ncnn"}
        assert f"aten::{kind.lower()}" in [item.name for item in opbridge.legacy.bridged()]
    with opbridge.legacy.enable():
        assert domains() == {""}
