"""What is special about ExecuTorch: it takes a torch program, and plans its memory before it runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_models import SoftSteps

import opbridge
from opbridge import engines
from opbridge.engines.specs import read_specs
from opbridge.errors import EngineError, EngineNotInstalledError, InputError, UnsupportedOperatorError

pytest.importorskip("executorch", reason="not run: executorch is not installed")


@pytest.fixture
def engine():
    return engines.get("executorch")


class Mixed(torch.nn.Module):
    """Views, indices, reductions, several outputs, a number of another type."""

    def forward(self, x, index):
        return (
            x[:, index].reshape(-1, 2),
            x.argmax(1),
            torch.nn.functional.layer_norm(x, x.shape[1:]),
            (x > 0).to(torch.bfloat16),
        )


def test_a_program_runs_at_other_sizes_up_to_the_planned_ones(engine, tmp_path):
    inputs = (torch.randn(3, 4), torch.tensor([2, 0]))
    bundle = opbridge.export(
        Mixed(), inputs, path=tmp_path / "b", engines=["executorch"], dynamic_shapes={"x": {0: "rows"}, "index": None}
    )
    assert bundle.verified, bundle.verification
    assert bundle.manifest["models"][0]["file"] == "model.executorch.pte"
    assert {step["rung"] for step in bundle.manifest["operators"]} == {"native"}
    session = opbridge.load(bundle.path, "executorch")
    assert (session.inputs, session.outputs) == read_specs(bundle.path / "model.executorch.json")
    assert [spec.dtype for spec in session.outputs] == ["float32", "int64", "float32", "bfloat16"]
    x, index = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32), np.array([1, 3])
    first = session(x, index)
    for result, expected in zip(first, Mixed()(torch.from_numpy(x), torch.from_numpy(index)), strict=True):
        np.testing.assert_allclose(result.astype(np.float32), expected.float().numpy(), rtol=1e-5, atol=1e-6)
    session(2 * x, index)
    assert np.array_equal(first[1], x.argmax(1)), "the next run must not overwrite earlier results"
    with pytest.raises(EngineError, match="ExecuTorch failed while running the program") as caught:
        session(np.zeros((17, 4), np.float32), index)
    assert "twice the example's" in caught.value.fix


def test_what_the_runtime_lacks_is_decomposed_or_named(engine, tmp_path):
    x = torch.randn(3, 4)
    bundle = opbridge.export(SoftSteps(), (x,), path=tmp_path / "b", engines=["executorch"], verify=False)
    (result,) = opbridge.load(bundle.path, "executorch")(x.numpy())
    np.testing.assert_allclose(result, SoftSteps()(x).numpy(), rtol=1e-6)
    rungs = {step["target"]: step["rung"] for step in bundle.manifest["operators"]}
    assert rungs["enginetest::soft_step"] == "function"
    (change,) = bundle.manifest["adaptations"]["executorch"]
    assert change["what"].startswith("enginetest::soft_step is decomposed: ExecuTorch")

    class Svd(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svd(x)[1]

    with pytest.raises(UnsupportedOperatorError) as caught:
        opbridge.export(Svd(), (torch.randn(3, 4),), path=tmp_path / "svd", engines=["executorch"])
    lacking = f"aten::linalg_svd: ExecuTorch {engine.version} has no kernel for aten::_linalg_svd, which"
    assert lacking in caught.value.message
    assert not (tmp_path / "svd").exists()


def test_what_only_the_whole_program_shows_is_an_error_with_a_fix(engine, tmp_path, monkeypatch):
    from opbridge.engines.executorch import native

    lacking = native.kernels() - {"aten::sigmoid.out"}
    model, x = torch.nn.Sigmoid(), torch.randn(2)
    engine._support  # noqa: B018, it is asked before the kernel goes
    opbridge.export(model, (x,), path=tmp_path / "a", engines=["executorch"], verify=False)
    monkeypatch.setattr(native, "kernels", lambda: lacking)
    with pytest.raises(
        EngineError, match=r"no kernel for aten::sigmoid\.out, which the compiled program calls"
    ) as caught:
        opbridge.export(model, (x,), path=tmp_path / "b", engines=["executorch"], verify=False)
    assert "@opbridge.decomposition" in caught.value.fix
    monkeypatch.setattr(
        native, "lowered", lambda program: (_ for _ in ()).throw(RuntimeError("\nno memory plan\nat x"))
    )
    with pytest.raises(EngineError, match="can't compile the program: no memory plan"):
        opbridge.export(model, (x,), path=tmp_path / "b", engines=["executorch"], verify=False)


def test_files_and_options_that_are_none(engine, tmp_path):
    bad = tmp_path / "bad.pte"
    bad.write_bytes(b"no program")
    with pytest.raises(InputError, match=r"bad\.json, which describes the model's inputs and outputs, is missing"):
        engine.load(bad)
    (tmp_path / "bad.json").write_text('{"inputs": [], "outputs": []}')
    with pytest.raises(EngineError, match=r"ExecuTorch .* refuses 'bad\.pte'") as caught:
        engine.load(bad)
    assert "export it again" in caught.value.fix
    for options, message in (
        ({"providers": ["x"]}, "no execution providers"),
        ({"libraries": [tmp_path / "k.so"]}, "takes no kernels of opbridge's, and got k.so"),
        ({"threads": 0}, "at least one thread"),
    ):
        with pytest.raises(InputError, match=message):
            engine.load(bad, **options)
    with pytest.raises(InputError, match="does not exist"):
        engine.load(tmp_path / "none.pte")


def test_it_is_not_there(engine, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "executorch", None)
    with pytest.raises(EngineNotInstalledError, match="executorch is not installed") as caught:
        _ = engine.version
    assert 'pip install "opbridge[executorch]"' in caught.value.fix
