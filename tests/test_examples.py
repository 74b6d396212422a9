"""Every example is exported and verified through the public functions, and does what its text says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import opbridge  # noqa: E402
from opbridge.entry import Entry, load_entry  # noqa: E402

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(file.stem for file in EXAMPLES.glob("*.py"))
NEEDS = {"deform_conv": "torchvision"}


def _entry(name: str) -> Entry:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    return load_entry(f"{EXAMPLES / name}.py:model")


def _export(name: str, folder: Path, **options: Any) -> tuple[Entry, opbridge.Bundle]:
    entry = _entry(name)
    bundle = opbridge.export(
        entry.model,
        entry.args,
        entry.kwargs,
        path=folder / name,
        dynamic_shapes=entry.dynamic_shapes,
        input_names=entry.input_names,
        output_names=entry.output_names,
        **options,
    )
    return entry, bundle


def _rungs(bundle: opbridge.Bundle) -> dict[str, tuple[str, str]]:
    return {step["target"]: (step["rung"], step["provider"]) for step in bundle.manifest["operators"]}


def _operators(bundle: opbridge.Bundle) -> Counter[str]:
    """How often each operator occurs in the graph itself, "domain::Op" for a custom one; bodies are not counted."""
    graph = onnx.load(bundle.path / "model.onnx").graph
    return Counter(f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in graph.node)


def _assert_same(entry: Entry, bundle: opbridge.Bundle, *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        expected = entry.model(*inputs)
    found = opbridge.load(bundle.path)(*(tensor.numpy() for tensor in inputs))
    for array, tensor in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_allclose(array, tensor.numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_verified(name: str, tmp_path: Path) -> None:
    _, bundle = _export(name, tmp_path)
    assert bundle.verified, (bundle.path / "verification.json").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_same_every_time(name: str) -> None:
    first, second = _entry(name), _entry(name)
    states = first.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert all(torch.equal(a, b) for a, b in zip(first.args, second.args, strict=True))
    assert not first.model.training


def test_asinh_takes_the_users_mapping_and_is_exact_everywhere(tmp_path: Path) -> None:
    _, bundle = _export("asinh", tmp_path, verify=False)
    assert _rungs(bundle)["aten::asinh"] == ("translate", "user")
    assert "Asinh" not in _operators(bundle)
    values = torch.tensor(
        [0.0, -0.0, 1e-42, 1e-20, 1e-4, -0.5, 1, 9999, 10001, -1e19, 3e38, -3e38, torch.inf, -torch.inf]
    )
    values = torch.cat([values, torch.tensor([torch.nan, 2.0])]).reshape(2, 8)
    found = opbridge.load(bundle.path)(values.numpy())[0]
    np.testing.assert_allclose(found, values.double().asinh().numpy(), 5e-7, 1e-44)


def test_deform_conv_raises_the_opset_and_says_why(tmp_path: Path) -> None:
    _, bundle = _export("deform_conv", tmp_path, verify=False)
    assert _operators(bundle)["DeformConv"] == 1
    assert bundle.manifest["models"][0]["opset"] == 19
    assert "deform_conv2d" in bundle.manifest["opset_reason"]


@pytest.mark.parametrize(
    ("name", "node", "count"), [("my_add", "mylib::my_add", 1), ("clamp_swish", "mylib::clamp_swish", 2)]
)
def test_an_own_operator_stays_one_node_with_one_body(name: str, node: str, count: int, tmp_path: Path) -> None:
    _, bundle = _export(name, tmp_path, verify=False)
    assert _rungs(bundle)[node] == ("function", "user")
    assert _operators(bundle)[node] == count
    functions = onnx.load(bundle.path / "model.onnx").functions
    assert [f"{function.domain}::{function.name}" for function in functions] == [node]


def test_super_resolution_takes_other_factors_and_sizes(tmp_path: Path) -> None:
    entry, bundle = _export("super_resolution", tmp_path, verify=False)
    assert _operators(bundle)["Resize"] == 1
    for factor in (1.0, 1.3, 2.7, 3.999):
        _assert_same(entry, bundle, torch.rand(3, 3, 10, 11), torch.tensor([factor]))
    # The size is rounded down as ONNX does it: 10 * 1.3 is 13 in float32.
    output = opbridge.load(bundle.path)(np.zeros((2, 3, 10, 10), np.float32), np.array([1.3], np.float32))[0]
    assert output.shape == (2, 3, 13, 13)


def test_the_loop_stays_a_loop(tmp_path: Path) -> None:
    entry, bundle = _export("loop", tmp_path, verify=False)
    assert _operators(bundle)["Loop"] == 1
    for steps in (0, 1, 9, 16, -3, 1000):
        _assert_same(entry, bundle, torch.randn(5, 8), torch.tensor(steps))


def test_the_branch_stays_a_branch(tmp_path: Path) -> None:
    entry, bundle = _export("branch", tmp_path, verify=False)
    assert _operators(bundle)["If"] == 1
    for brightness in (-1.0, 1.0):
        _assert_same(entry, bundle, torch.randn(3, 3, 8, 8) + brightness)


def test_the_detector_head_takes_its_mappings_from_the_catalog(tmp_path: Path) -> None:
    entry, bundle = _export("detector_head", tmp_path, verify=False)
    rungs = _rungs(bundle)
    assert rungs["aten::cummax"] == ("translate", "catalog")
    assert rungs["aten::searchsorted.Tensor"] == ("translate", "catalog")
    assert rungs["aten::_cdist_forward"] == ("decompose", "catalog")
    for candidates in (1, 2, 77):
        _assert_same(entry, bundle, torch.randn(candidates, 16))


def test_swin_rolls_a_batch_of_another_size(tmp_path: Path) -> None:
    entry, bundle = _export("swin_roll", tmp_path, verify=False)
    _assert_same(entry, bundle, torch.randn(3, 14, 14, 32))
