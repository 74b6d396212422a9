"""The operators of opbridge.vision against loops in float64, in PyTorch, with kernel and without."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import vision_references as reference

import opbridge
import opbridge.vision
from opbridge.catalog.declare.operator import Operator, without_kernels
from opbridge.errors import InputError
from opbridge.verbs.operator_check import check_operators

pytestmark = pytest.mark.newest

NAMES = sorted(opbridge.vision.__all__)


def _roi_align_rotated(image: Any, rois: Any, height: int, width: int, *others: Any) -> Any:
    return reference.roi_align_rotated(image, rois, (height, width), *others)


# The others are called like the operators.
REFERENCES = {"nms_rotated": reference.nms, "roi_align_rotated": _roi_align_rotated}


def _operator(name: str) -> Operator:
    found = getattr(opbridge.vision, name)
    assert isinstance(found, Operator)
    return found


@pytest.mark.filterwarnings("error:.*runs its Python function")
@pytest.mark.quick(every=2)
@pytest.mark.parametrize("has_kernel", [True, False], ids=["kernel", "function"])
@pytest.mark.parametrize("name", NAMES)
def test_the_reference(name: str, has_kernel: bool) -> None:
    operator = _operator(name)
    assert operator.samples is not None
    for sample in operator.samples():
        wide = [
            item.double() if isinstance(item, torch.Tensor) and item.is_floating_point() else item
            for item in sample.args
        ]
        compute = REFERENCES.get(name) or getattr(reference, name)
        expected = compute(*(item.numpy() if isinstance(item, torch.Tensor) else item for item in wide))
        if has_kernel:
            result = operator(*wide)
        else:
            with without_kernels():
                result = operator(*wide)
        results = result if isinstance(result, tuple) else (result,)
        for found, right in zip(results, reference.flattened(expected), strict=True):
            torch.testing.assert_close(found, torch.from_numpy(right), rtol=1e-9, atol=1e-9)


@pytest.mark.sweep
@pytest.mark.parametrize("name", NAMES)
def test_every_check_of_test_op_passes(name: str) -> None:
    module = importlib.import_module(_operator(name).function.__module__)
    checked = check_operators(Path(str(module.__file__)), engines=["onnxruntime", "openvino"])
    assert [result for result in checked.results if result.status == "failed"] == []
    assert checked.passed


DYNAMIC: dict[str, Sequence[tuple[str, ...]]] = {
    "ball_query": [("n", "queries"), ("n", "points")],
    "bias_act": [("n", "c", "length"), ("c",)],
    "border_align": [("n", "", "h", "w"), ("n", "boxes")],
    "box_iou_quadri": [("n",), ("m",)],
    "box_iou_rotated": [("n",), ("m",)],
    "boxes_iou3d": [("n",), ("m",)],
    "carafe": [("n", "c"), ("n",)],
    "corner_pool": [("n", "c", "h", "w")],
    "dynamic_scatter": [("points", "c"), ("points",)],
    "dynamic_voxelize": [("points",)],
    "furthest_point_sample": [("n", "points")],
    "group_points": [("n", "c", "points"), ("n", "groups", "each")],
    "hard_voxelize": [("points",)],
    "knn": [("n", "queries"), ("n", "points")],
    "nms3d": [("boxes",), ("boxes",)],
    "points_in_boxes_all": [("n", "points"), ("n", "boxes")],
    "points_in_boxes_part": [("n", "points"), ("n", "boxes")],
    "running_extremes": [("n", "length", "c")],
    "soft_nms": [("boxes",), ("boxes",)],
    "three_interpolate": [("n", "c", "points"), ("n", "sums"), ("n", "sums")],
    "upfirdn2d": [("n", "c", "h", "w"), ()],
}
"""The names of the dynamic sizes of each tensor; a size without a name is fixed."""


WRONG_AT_FLOAT16 = ("hard_voxelize", "nms3d")
"""What OpenVINO decides otherwise than PyTorch at float16, a limit of docs/vision.md."""


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_sizes(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    operator = _operator(name)
    assert operator.samples is not None
    sample = operator.samples()[0]

    class Model(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> Any:
            given = iter(tensors)
            return operator(*(next(given) if isinstance(item, torch.Tensor) else item for item in sample.args))

    tensors = tuple(
        item.to(dtype) if item.is_floating_point() else item for item in sample.args if isinstance(item, torch.Tensor)
    )
    sizes = tuple({axis: size for axis, size in enumerate(names) if size} for names in DYNAMIC[name])
    bundle = opbridge.export(
        Model(), tensors, path=tmp_path / "bundle", engines=["onnxruntime", "openvino"], dynamic_shapes=(sizes,)
    )
    if name in WRONG_AT_FLOAT16 and dtype is torch.float16:
        wrong = {item["engine"] for item in bundle.verification["engines"] if item["verdict"] != "passed"}
        assert wrong == {"openvino with kernels", "openvino with function bodies"}
        return
    assert bundle.verified
    dimensions = {name for names in DYNAMIC[name] for name in names if name}
    assert set(opbridge.load(bundle.path).inputs[0].shape) & dimensions


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, as a part of others or as a transposed tensor has them."""
    if tensor.dim() < 2:
        return torch.stack([tensor, tensor], -1)[..., 0]
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


@pytest.mark.quick(every=12)
@pytest.mark.parametrize("name", NAMES)
def test_strided_inputs_are_captured(name: str) -> None:
    operator = _operator(name)
    assert operator.samples is not None
    for sample in operator.samples():

        class Model(torch.nn.Module):
            def forward(self, *tensors: torch.Tensor, args: Sequence[Any] = sample.args) -> Any:
                given = map(_strided, tensors)
                return operator(*(next(given) if isinstance(item, torch.Tensor) else item for item in args))

        tensors = tuple(item for item in sample.args if isinstance(item, torch.Tensor))
        with without_kernels():
            program = torch.export.export(Model(), tensors)
            torch.testing.assert_close(program.module()(*tensors), operator(*sample.args))


def _zeros(*sizes: int) -> torch.Tensor:
    return torch.zeros(sizes)


@pytest.mark.quick("nms_match-arguments3-shapes3-False", "nms_rotated-arguments2-shapes2-False", every=3)
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(
    ("name", "arguments", "shapes"),
    [
        ("soft_nms", (_zeros(0, 4), _zeros(0)), [(0, 5), (0,)]),
        ("nms3d", (_zeros(0, 7), _zeros(0), 0.5), [(0,)]),
        ("nms_rotated", (_zeros(2, 0, 5), _zeros(2, 3, 0), 0.5, 0.1), [(0, 3)]),
        ("nms_match", (_zeros(2, 0, 4), _zeros(2, 3, 0), 0.5, 0.1), [(0, 4)]),
    ],
)
def test_no_boxes(name: str, arguments: tuple[Any, ...], shapes: list[tuple[int, ...]], kernels: bool) -> None:
    with contextlib.nullcontext() if kernels else without_kernels():
        results = _operator(name)(*arguments)
    assert [tuple(item.shape) for item in (results if isinstance(results, tuple) else (results,))] == shapes


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("box_iou_rotated", (_zeros(2, 5), _zeros(3, 5), "giou"), "mode is 'giou', which is not one of 'iou', 'iof'"),
        (
            "soft_nms",
            (_zeros(2, 4), _zeros(2), 0.3, 0.5, 0.1, "hard"),
            "method is 'hard', which is not one of 'linear'",
        ),
        ("corner_pool", (_zeros(1, 1, 2, 2), "up"), "mode is 'up', which is not one of 'top', 'bottom'"),
        ("bias_act", (_zeros(2, 3), None, 1, "gelu"), "act is 'gelu', which is not one of 'linear', 'relu'"),
        ("dynamic_scatter", (_zeros(2, 3), _zeros(2, 3).long(), "min"), "reduce is 'min', which is not one of 'max'"),
        ("dynamic_voxelize", (_zeros(2, 3), [1.0, 0.0, 1.0], [0.0] * 6), r"voxel_size is \[1.0, 0.0, 1.0\] and point_"),
    ],
)
def test_what_is_refused(name: str, arguments: tuple[Any, ...], message: str) -> None:
    operator = _operator(name)
    with without_kernels(), pytest.raises(InputError, match=message) as caught:
        operator(*arguments)
    assert caught.value.fix.startswith("pass ")


@pytest.mark.slow
def test_the_sizes_that_kernels_refuse() -> None:
    for name, arguments, message in (
        ("knn", (_zeros(1, 2, 3), _zeros(1, 2, 3), 3), "knn: 3 nearest of 2 points"),
        ("nms3d", (_zeros(3, 7), _zeros(2), 0.5), r"nms3d: scores must have sizes \(3\), not \(2,\)"),
        ("box_iou_rotated", (_zeros(3, 4), _zeros(2, 5)), r"boxes1 must have sizes \(boxes, 5\), not \(3, 4\)"),
    ):
        with pytest.raises(RuntimeError, match=message):
            _operator(name)(*arguments)


def test_the_names() -> None:
    assert dir(opbridge.vision) == NAMES
    with pytest.raises(AttributeError, match=r"module 'opbridge\.vision' has no attribute 'nms_rotate'"):
        opbridge.vision.nms_rotate  # noqa: B018
    for name in NAMES:
        page = (Path(__file__).parents[2] / "docs" / "vision.md").read_text()
        assert f"`{name}`" in page
