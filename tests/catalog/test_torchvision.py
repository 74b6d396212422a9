"""The operators of torchvision and its transforms of tensors, exported for two engines and verified at other sizes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
torchvision = pytest.importorskip("torchvision")

from linalg_kernels import needs_compiler  # noqa: E402
from roundtrip import travel  # noqa: E402
from torchvision.models.detection import roi_heads  # noqa: E402
from torchvision.models.swin_transformer import (  # noqa: E402
    PatchMergingV2,
    SwinTransformer,
    SwinTransformerBlockV2,
)
from torchvision.transforms import _functional_tensor  # noqa: E402
from torchvision.transforms.v2 import functional  # noqa: E402
from torchvision_cases import OPERATORS, Group, Together, rotated_boxes  # noqa: E402
from torchvision_transforms import TRANSFORMS  # noqa: E402

import opbridge  # noqa: E402
from opbridge.capture.capture import capture  # noqa: E402
from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.catalog.ops.nn import upsample_aa, upsample_bytes  # noqa: E402
from opbridge.catalog.ops.vision import box_iou, pad_symmetric  # noqa: E402

pytestmark = pytest.mark.newest

EXPORTED = {"deform_conv2d", "nms", "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool"}
NOT_EXPORTED = {
    "box_iou_rotated": "torchvision gives it no shape function; torchvision.ops.box_iou, which calls it, is exported",
    "qnms": "of quantized tensors",
    "qroi_align": "of quantized tensors",
    "_cuda_version": "gives a number, and takes no tensor",
    **{
        f"_{name}_backward": "computes gradients"
        for name in ("deform_conv2d", "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool")
    },
}
NOT_OF_TENSORS = {
    "InterpolationMode",
    "is_pure_tensor",
    "register_kernel",
    "jpeg",
    "to_grayscale",
    "get_image_size",
} | {
    *("get_dimensions", "get_num_channels", "get_num_frames", "get_size", "get_image_num_channels"),
    *("get_size_bounding_boxes", "get_size_keypoints", "get_size_mask"),
    *("pil_to_tensor", "to_image", "to_pil_image", "to_tensor"),
}
"""They take or give images of PIL, bytes of JPEG files, or sizes."""
NOT_IN_THE_TABLE = {
    "gaussian_noise": "draws random numbers, which engines draw differently",
    "uniform_temporal_subsample": "selects frames by indices that are constants",
    **{f"elastic_{kind}": "like elastic" for kind in ("bounding_boxes", "keypoints", "mask")},
    **dict.fromkeys(("hflip", "vflip", "elastic_transform"), "another name"),
}
SLOW = {"suppression", "focal loss", "masks", "pyramid", "layers", "hue"}
GROUPS = OPERATORS | TRANSFORMS


def test_every_registered_operator_is_listed() -> None:
    registered = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if "torchvision::" in name}
    assert registered == EXPORTED | set(NOT_EXPORTED)
    assert _covered(OPERATORS) >= EXPORTED


def test_every_public_operator_is_listed() -> None:
    assert _covered(OPERATORS) >= set(torchvision.ops.__all__)
    assert {name for name in _covered(OPERATORS) if not hasattr(torchvision.ops, name)} == set()


def test_every_transform_of_tensors_is_listed() -> None:
    public = {name for name in dir(functional) if not name.startswith("_")}
    plain = {name.removesuffix("_video") for name in public if callable(getattr(functional, name))}
    plain = {name.removesuffix("_image") if name.removesuffix("_image") in plain else name for name in plain}
    assert plain == _covered(TRANSFORMS) | NOT_OF_TENSORS | set(NOT_IN_THE_TABLE)


def _covered(groups: dict[str, Group]) -> set[str]:
    return {text.partition(" ")[0] for group in groups.values() for text in group.functions}


def _cases() -> list[Any]:
    cases = [(name, dtype) for name, group in GROUPS.items() for dtype in group.dtypes]
    marks = {True: pytest.mark.slow, False: pytest.mark.sweep}
    return [pytest.param(name, dtype, marks=marks[name in SLOW and dtype != "float16"]) for name, dtype in cases]


@pytest.mark.quick(every=6)
@pytest.mark.parametrize(("name", "dtype"), _cases())
def test_functions(name: str, dtype: str, tmp_path: Path) -> None:
    group = GROUPS[name]
    for engine in group.engines:
        pytest.importorskip(engine)
    bundle = opbridge.export(
        Together(group, dtype),
        group.example(dtype),
        path=tmp_path / "bundle",
        engines=group.engines,
        dynamic_shapes=group.dynamic_shapes(),
    )
    assert bundle.verified, bundle.verification


def test_overlaps_of_rotated_boxes() -> None:
    first, second = (rotated_boxes(count) for count in (60, 50))
    whole = first.round()
    whole[:, 4] = (whole[:, 4] / 45).round() * 45
    for one, other in ((first, second), (first, first), (whole, whole), (first.double(), second.double())):
        expected = torch.ops.torchvision.box_iou_rotated(one, other)
        found = box_iou.box_iou(torchvision.ops.box_iou, one, other, "cxcywhr")
        torch.testing.assert_close(found, expected, rtol=0, atol=5e-6)
    # torchvision's own result is 1/3 for some of these.
    near = first.double() + 1e-6
    assert box_iou.box_iou(torchvision.ops.box_iou, first.double(), near, "cxcywhr").diagonal().min() > 0.999


@needs_compiler
@pytest.mark.quick(every=0)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernel_for_overlaps_of_rotated_boxes(dtype: torch.dtype, tmp_path: Path) -> None:
    first, second = rotated_boxes(70), rotated_boxes(80)
    whole = first.round()
    whole[:, 4] = (whole[:, 4] / 45).round() * 45
    whole[:3, 2:4] = torch.tensor([[0.0, 5.0], [-3.0, 5.0], [-3.0, -5.0]])

    class Overlaps(torch.nn.Module):
        def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return torchvision.ops.box_iou(one, other, "cxcywhr")

    example = first.to(dtype), second.to(dtype)
    bundle = opbridge.export(Overlaps(), example, path=tmp_path / "b", dynamic_shapes=({0: "n"}, {0: "m"}))
    assert bundle.verified
    assert "opbridge::RotatedOverlaps" in bundle.manifest["kernels"][0]["operators"]
    run = opbridge.load(bundle.path)
    for one, other in ((first, second), (first, first), (whole, whole), (first, second[:0])):
        (found,) = run(one.to(dtype).numpy(), other.to(dtype).numpy())
        expected = torch.ops.torchvision.box_iou_rotated(one.double(), other.double())
        torch.testing.assert_close(torch.from_numpy(found), expected.float(), rtol=0, atol=2e-6)


@pytest.mark.parametrize("align_corners", [False, True])
def test_resizing_with_a_windowed_sinc(align_corners: bool) -> None:
    image = torch.randn(2, 3, 12, 16, dtype=torch.float64)
    for sizes in ([5, 31], [24, 7], [12, 16]):
        expected = torch.ops.aten._upsample_lanczos2d_aa(image, sizes, align_corners)
        found = upsample_aa.upsample_lanczos2d_aa(image, sizes, align_corners)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizing_of_bytes_is_exact(mode: str, antialias: bool) -> None:
    function = {
        ("bilinear", False): upsample_bytes.upsample_bilinear2d,
        ("bicubic", False): upsample_bytes.upsample_bicubic2d,
        ("bilinear", True): upsample_aa.upsample_bilinear2d_aa,
        ("bicubic", True): upsample_aa.upsample_bicubic2d_aa,
    }[mode, antialias]
    factors = {} if antialias else {"scale_factors": None}
    image = torch.randint(0, 256, (2, 3, 16, 33), dtype=torch.uint8)
    for height, width, align_corners in itertools.product((2, 9, 16, 50), (7, 33, 40), (False, True)):
        found = function(image, [height, width], align_corners, **factors)
        expected = torch.nn.functional.interpolate(
            image, (height, width), mode=mode, align_corners=align_corners, antialias=antialias
        )
        assert torch.equal(found, expected), (height, width, align_corners)


def test_resizing_of_bytes_by_factors_is_exact() -> None:
    image = torch.randint(0, 256, (1, 3, 15, 22), dtype=torch.uint8)
    for factors in ([1.5, 0.7], [0.4, 3.0]):
        found = upsample_bytes.upsample_bilinear2d(image, None, False, factors)
        expected = torch.nn.functional.interpolate(image, scale_factor=factors, mode="bilinear")
        assert torch.equal(found, expected)


def test_suppression_of_boxes_with_exchanged_corners() -> None:
    def model(boxes: torch.Tensor, scores: torch.Tensor) -> Any:
        return torchvision.ops.nms(boxes, scores, 0.3)

    torch.manual_seed(0)
    trip = travel(model, (torch.rand(20, 4), torch.rand(20)), dynamic_shapes=({0: "n"}, {0: "n"}))
    for count in (30, 60, 1, 0):
        trip.check(torch.rand(count, 4), torch.rand(count))


def test_symmetric_padding() -> None:
    image = torch.randn(2, 3, 4, 5)
    expected = _functional_tensor._pad_symmetric(image, [1, 2, 3, 4])
    mirrored = pad_symmetric.mirrored(pad_symmetric.mirrored(image, -1, 1, 2), -2, 3, 4)
    assert torch.equal(mirrored, expected)


@pytest.mark.quick(every=0)
@pytest.mark.parametrize("version", [1, 2])
def test_shifted_windows_of_any_size(version: int) -> None:
    torch.manual_seed(0)
    own = {} if version == 1 else {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2}
    model = SwinTransformer([2, 2], 8, [2], [2], [4, 3], num_classes=5, **own).eval()
    example = torch.randn(2, 3, 26, 18)
    shapes = ({0: "n", 2: "h", 3: "w"},)
    program = capture(model, (example,), dynamic_shapes=shapes, rewrites=Catalog.load().rewrites()).program
    for size in ((4, 26, 18), (2, 8, 16), (3, 31, 7), (2, 16, 24)):
        x = torch.randn(size[0], 3, *size[1:])
        torch.testing.assert_close(program.module(check_guards=False)(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.sweep
def test_keypoints_of_heatmaps(tmp_path: Path) -> None:
    corners = 30 * torch.rand(6, 2)
    found = torch.cat([corners, corners + torch.tensor([0.5, 3.0]) + 40 * torch.rand(6, 2)], 1)

    class Keypoints(torch.nn.Module):
        def forward(self, maps: Any, found: Any) -> Any:
            return roi_heads.heatmaps_to_keypoints(maps, found)

    bundle = opbridge.export(
        Keypoints(),
        (torch.randn(6, 5, 14, 14), found),
        path=tmp_path / "bundle",
        dynamic_shapes=({0: "objects"}, {0: "objects"}),
    )
    assert bundle.verified, bundle.verification
