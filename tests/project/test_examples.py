"""Every example is exported and verified through the public functions, and does what its text says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import ENTRIES, EXAMPLES, TUTORIAL

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import opbridge  # noqa: E402
from opbridge.capture.entry import Entry, load_entry  # noqa: E402
from opbridge.errors import BuildError  # noqa: E402
from opbridge.kernels.toolchain import find_compiler  # noqa: E402

pytestmark = pytest.mark.newest

NAMES = list(ENTRIES)
NEEDS = {"deform_conv": "torchvision"}
KERNELS = {file.stem for folder in (EXAMPLES, TUTORIAL) for file in folder.glob("*.h")}


def _entry(name: str) -> Entry:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    if name in KERNELS:
        try:
            find_compiler()
        except BuildError as error:
            pytest.skip(error.message)
    return load_entry(f"{ENTRIES[name]}:model")


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


@pytest.mark.quick("asinh", "detector_head", every=16)
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


@pytest.mark.quick("clamp_swish")
@pytest.mark.parametrize(
    ("name", "node", "count"), [("my_add", "mylib::my_add", 1), ("clamp_swish", "mylib::clamp_swish", 2)]
)
def test_an_own_operator_stays_one_node_with_a_kernel_and_a_body(
    name: str, node: str, count: int, tmp_path: Path
) -> None:
    _, bundle = _export(name, tmp_path, verify=False)
    assert _rungs(bundle)[node] == ("kernel", "user")
    assert [(kernels["operators"], kernels["optional"]) for kernels in bundle.manifest["kernels"]] == [([node], True)]
    assert _operators(bundle)[node] == count
    functions = onnx.load(bundle.path / "model.onnx").functions
    assert [f"{function.domain}::{function.name}" for function in functions] == [node]


def _shared_area(one: np.ndarray, other: np.ndarray) -> float:
    """By clipping one polygon with each side of the other in turn, in float64."""

    def corners(box: np.ndarray) -> np.ndarray:
        x, y, width, height, angle = box
        along = np.array([np.cos(angle), np.sin(angle)]) * width / 2
        across = np.array([-np.sin(angle), np.cos(angle)]) * height / 2
        return np.array([x, y]) + np.array([along + across, across - along, -along - across, along - across])

    polygon, clip = list(corners(one)), corners(other)
    for start, end in zip(clip, np.roll(clip, -1, 0), strict=True):
        normal = np.array([start[1] - end[1], end[0] - start[0]])
        inside = [float(normal @ (point - start)) for point in polygon]
        clipped = []
        for i, point in enumerate(polygon):
            if (inside[i] >= 0) != (inside[i - 1] >= 0):
                clipped.append(point + (polygon[i - 1] - point) * inside[i] / (inside[i] - inside[i - 1]))
            if inside[i] >= 0:
                clipped.append(point)
        polygon = clipped
    points = np.array(polygon).reshape(-1, 2)
    x, y = points[:, 0], points[:, 1]
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)


def _boxes(count: int, seed: int) -> np.ndarray:
    """Rotated boxes, some of them equal, upright, inside another, empty, or far from the origin."""
    random = np.random.default_rng(seed)
    boxes = random.uniform([0, 0, 5, 5, -4], [100, 100, 50, 50, 4], (count, 5))
    boxes[1::7] = boxes[::7][: len(boxes[1::7])]
    boxes[2::7, 4] = 0
    boxes[3::7, :2], boxes[3::7, 4] = boxes[2::7, :2][: len(boxes[3::7])], np.pi / 2
    boxes[5::14, 2] = 0
    boxes[:: count // 2 + 1, :2] += 1e4
    return boxes


@pytest.mark.quick("dtype0", every=3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rotated_nms_is_right(dtype: torch.dtype) -> None:
    _entry("rotated_nms")
    rotated_nms = torch.ops.mylib.rotated_nms
    boxes = torch.from_numpy(_boxes(60, seed=3)).to(dtype)
    scores = torch.from_numpy(np.random.default_rng(4).permutation(60) // 2 / 30).to(dtype)
    wide = boxes.double().numpy()
    areas = wide[:, 2] * wide[:, 3]
    kept: list[int] = []
    for i in torch.sort(scores, descending=True, stable=True).indices.tolist():
        shared = [_shared_area(wide[i], wide[j]) for j in kept]
        if all(area <= 0.3 * (areas[i] + areas[j] - area) for area, j in zip(shared, kept, strict=True)):
            kept.append(i)
    assert 10 < len(kept) < 55
    assert rotated_nms(boxes, scores, 0.3).tolist() == kept


@pytest.mark.sweep
def test_rotated_nms_by_kernel_and_by_body(tmp_path: Path) -> None:
    _, bundle = _export("rotated_nms", tmp_path, verify=False)
    assert _rungs(bundle)["mylib::rotated_nms"] == ("kernel", "user")
    fast, slow = opbridge.load(bundle.path), opbridge.load(bundle.path, kernels=False)
    random = np.random.default_rng(0)
    for count in (2, 3, 100):
        head = random.standard_normal((count, 5)).astype(np.float32)
        scores = (random.integers(0, count, count) / count).astype(np.float32)
        for one, other in zip(fast(head, scores), slow(head, scores), strict=True):
            np.testing.assert_array_equal(one, other)


def test_rotated_nms_refuses_what_are_no_boxes() -> None:
    _entry("rotated_nms")
    rotated_nms = torch.ops.mylib.rotated_nms
    assert rotated_nms(torch.zeros(0, 5), torch.zeros(0), 0.5).tolist() == []
    assert rotated_nms(torch.ones(1, 5), torch.ones(1), 0.5).tolist() == [0]
    assert rotated_nms(torch.zeros(3, 5), torch.tensor([0.5, torch.nan, 0.7]), 0.5).tolist() == [1, 2, 0]
    with pytest.raises(RuntimeError, match=r"rotated_nms.*boxes must have sizes \(n, 5\), not \(2, 4\)"):
        rotated_nms(torch.ones(2, 4), torch.ones(2), 0.5)
    with pytest.raises(RuntimeError, match="there are 2 boxes, but scores of sizes"):
        rotated_nms(torch.ones(2, 5), torch.ones(3), 0.5)
    with pytest.raises(RuntimeError, match="must not be negative"):
        rotated_nms(torch.ones(2, 5), torch.ones(2), -0.5)


def test_super_resolution_takes_other_factors_and_sizes(tmp_path: Path) -> None:
    entry, bundle = _export("super_resolution", tmp_path, verify=False)
    assert _operators(bundle)["Resize"] == 1
    for factor in (1.0, 1.3, 2.7, 3.999):
        _assert_same(entry, bundle, torch.rand(3, 3, 10, 11), torch.tensor([factor]))
    # The size is rounded down as ONNX does it: 10 * 1.3 is 13 in float32.
    output = opbridge.load(bundle.path)(np.zeros((2, 3, 10, 10), np.float32), np.array([1.3], np.float32))[0]
    assert output.shape == (2, 3, 13, 13)


@pytest.mark.slow
def test_the_loop_stays_a_loop(tmp_path: Path) -> None:
    entry, bundle = _export("loop", tmp_path, verify=False)
    assert _operators(bundle)["Loop"] == 1
    for steps in (0, 1, 9, 16, -3, 1000):
        _assert_same(entry, bundle, torch.randn(5, 8), torch.tensor(steps))


@pytest.mark.slow
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


@pytest.mark.slow
def test_swin_rolls_a_batch_of_another_size(tmp_path: Path) -> None:
    entry, bundle = _export("swin_roll", tmp_path, verify=False)
    _assert_same(entry, bundle, torch.randn(3, 14, 14, 32))
