"""``export(state=True)``: buffers that ``forward`` changes are inputs and outputs, verified over several steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import numpy as np  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import opbridge  # noqa: E402
from opbridge.capture.stateful import capture_with_state  # noqa: E402
from opbridge.cli import main  # noqa: E402
from opbridge.errors import InputError  # noqa: E402


class Streaming(nn.Module):
    """A recurrent cell that keeps its hidden state: the buffer is assigned."""

    def __init__(self, batch: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.GRUCell(3, 5)
        self.head = nn.Linear(5, 1)
        self.register_buffer("hidden", torch.zeros(batch, 5))

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = self.cell(x, self.hidden)
        return self.head(self.hidden).sigmoid()


class Counter(nn.Module):
    """A buffer that is changed in place, and an output that is the buffer itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor, *, scale: Tensor) -> dict[str, Tensor]:
        self.steps.add_(1)
        return {"scaled": x * scale * self.steps, "count": self.steps}


class Ring(nn.Module):
    """A ring buffer with a place to write at, inside another module."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.Module()
        self.memory.register_buffer("ring", torch.zeros(4, 3))
        self.memory.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.memory.ring.index_copy_(0, self.memory.place, x[None])
        self.memory.place.copy_((self.memory.place + 1) % 4)
        return self.memory.ring.mean(0)


class Averaged(nn.Module):
    """A batch normalization: its buffers change in training, and in evaluation they do not."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


MODELS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], dict[str, str]]] = {
    "streaming": (Streaming, (torch.randn(2, 3),), {}, {"hidden": "state_hidden"}),
    "counter": (Counter, (torch.randn(3),), {"scale": torch.rand(1)}, {"steps": "state_steps"}),
    "ring": (
        Ring,
        (torch.randn(3),),
        {},
        {"memory.ring": "state_memory_ring", "memory.place": "state_memory_place"},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_changed_buffers_are_inputs_and_outputs(name: str) -> None:
    made, args, kwargs, buffers = MODELS[name]
    model = made()
    before = {key: value.clone() for key, value in model.named_buffers()}
    captured = capture_with_state(model, args, kwargs)
    assert {item.buffer: item.input for item in captured.state} == buffers
    assert list(captured.input_names[-len(buffers) :]) == list(buffers.values())
    assert list(captured.output_names[-len(buffers) :]) == [f"next_{name}" for name in buffers.values()]
    assert all(torch.equal(value, before[key]) for key, value in model.named_buffers())


@pytest.mark.quick("ring")
@pytest.mark.parametrize("name", MODELS)
def test_the_state_is_fed_back(name: str, tmp_path: Path) -> None:
    made, args, kwargs, buffers = MODELS[name]
    bundle = opbridge.export(made(), args, kwargs, path=tmp_path / "bundle", state=True)
    assert bundle.verified, bundle.verification
    cases = bundle.verification["cases"]
    assert [case["name"] for case in cases if "step" in case["name"]] == ["step 1", "step 2", "step 3", "step 4"]
    assert all(case["eager_matches"] for case in cases)
    assert [item["buffer"] for item in bundle.manifest["state_buffers"]] == list(buffers)

    session, model = opbridge.load(bundle.path), made().eval()
    state = dict(np.load(bundle.path / "initial_state.npz"))
    assert sorted(state) == sorted(buffers.values())
    for _ in range(6):
        x = torch.randn_like(args[0])
        results = session.run({"x": x.numpy(), **{key: value.numpy() for key, value in kwargs.items()}, **state})
        state = {name: results[f"next_{name}"] for name in state}
        outputs = model(x, **kwargs)
        expected = list(outputs.values()) if isinstance(outputs, dict) else [outputs]
        for output, array in zip(expected, results.values(), strict=False):
            np.testing.assert_allclose(array, output.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_later_verification_knows_the_state(tmp_path: Path) -> None:
    entry = tmp_path / "vad.py"
    entry.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import torch\n"
        "from test_state import Streaming\n\n"
        "def model():\n"
        "    return Streaming(), (torch.ones(2, 3),)\n"
    )
    for number, more in enumerate(([], ["--with-reference"])):
        folder = tmp_path / f"bundle{number}"
        assert main(["export", f"{entry}:model", "-o", str(folder), "--state", *more]) == 0
        assert main(["verify", str(folder)]) == 0
        found = json.loads((folder / "verification.json").read_text())
        assert found["cases"][-1]["name"] == "step 4"
        assert found["verdict"] == "passed"


def test_a_dynamic_batch_of_the_state() -> None:
    shapes = {"x": {0: "batch"}, "state_hidden": {0: "batch"}}
    captured = capture_with_state(Streaming(), (torch.randn(2, 3),), dynamic_shapes=shapes)
    assert sorted(set(captured.dimension_names.values())) == ["batch"]
    by_position = capture_with_state(Streaming(), (torch.randn(2, 3),), input_names=["a"], output_names=["b"])
    assert by_position.input_names == ("a", "state_hidden")
    assert by_position.output_names == ("b", "next_state_hidden")


def test_a_model_without_changes_has_no_state() -> None:
    captured = capture_with_state(Averaged(), (torch.randn(4, 3),), dynamic_shapes=({0: "batch"},))
    assert captured.state == ()
    assert captured.input_names == ("x",)
    assert list(captured.dimension_names.values()) == ["batch"]


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.cache = torch.cat([self.cache, x[None]])
        return self.cache.sum(0)


def test_a_state_that_grows_is_refused() -> None:
    with pytest.raises(InputError, match=r"'cache' has the shape \[1, 3\] of float32 .* \[2, 3\] of float32") as caught:
        capture_with_state(Growing(), (torch.randn(3),))
    assert "ring buffer" in caught.value.fix


def test_the_state_of_a_program_is_refused() -> None:
    program = torch.export.export(Streaming(), (torch.randn(2, 3),))
    with pytest.raises(InputError, match="ExportedProgram"):
        capture_with_state(program)


class CountsInPython(nn.Module):
    """A Python number changes from call to call beside the buffer: the ONNX model can't follow."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.total += x
        return self.total / self.calls


def test_a_state_in_python_is_found(tmp_path: Path) -> None:
    bundle = opbridge.export(CountsInPython(), (torch.rand(3),), path=tmp_path / "bundle", state=True)
    assert not bundle.verified
    cases = {case["name"]: case for case in bundle.verification["cases"]}
    assert cases["step 1"]["verdict"] == "passed"
    assert cases["step 2"]["eager_matches"] is False
    assert "something beside its buffers changes" in cases["step 2"]["notes"][-1]


def test_without_the_switch_a_finding_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = tmp_path / "vad.py"
    entry.write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.register_buffer('n', torch.zeros(1))\n"
        "    def forward(self, x):\n"
        "        self.n += 1\n"
        "        return x + self.n\n"
        "def model():\n"
        "    return Model(), (torch.ones(2, 3),)\n"
    )
    folder = tmp_path / "bundle"
    assert main(["export", f"{entry}:model", "-o", str(folder)]) == 0
    printed = "".join(capsys.readouterr().out.split())  # Where a line is wrapped depends on the length of the path.
    for text in (
        "The model changes its buffer 'n' at ",
        "vad.py:7; in the ONNX model it has its initial value in every run.",
        "export with --state (state=True)",
        "the model was passed in training mode; it is exported and compared in evaluation mode",
    ):
        assert "".join(text.split()) in printed
    manifest = json.loads((folder / "bundle.json").read_text())
    assert manifest["was_training"] is True
    assert "state_buffers" not in manifest


def test_an_onnx_model_has_no_hidden_state(place: Path) -> None:
    with pytest.raises(InputError, match="state is for PyTorch models"):
        opbridge.export("m.onnx", path="bundle", state=True)
