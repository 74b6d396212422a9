"""What real models do that a graph can't hold: detectors, sizes in Python, caches as outputs. Proved at other sizes."""

from __future__ import annotations

import builtins
import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from roundtrip import travel
from torch import Tensor, nn

import opbridge
from opbridge.capture.capture import capture
from opbridge.capture.rewriting import rewriting
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.spec import OpSpec
from opbridge.torch_graph.dimensions import size_at
from opbridge.torch_graph.outputs import opened

pytestmark = pytest.mark.newest

DYNAMIC = torch.export.Dim.DYNAMIC
IMAGE = {1: DYNAMIC, 2: DYNAMIC}


class Pyramid(nn.Module):
    """Three levels of features, at an 8th, a 16th and a 32nd of the image's size."""

    out_channels = 32

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 7, stride=4, padding=3)
        self.stages = nn.ModuleList(nn.Conv2d(32, 32, 3, stride=2, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x, levels = self.stem(x), OrderedDict()
        for number, stage in enumerate(self.stages):
            x = levels[str(number)] = stage(x.relu())
        return levels


def wake(part: nn.Module) -> None:
    """Random weights that make outputs differ: torchvision's own give all classes one score, and no box survives."""
    for layer in part.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)


def small_ssd() -> nn.Module:
    pytest.importorskip("torchvision")
    from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
    from torchvision.models.detection.ssd import SSD, SSDHead

    torch.manual_seed(0)
    boxes = DefaultBoxGenerator([[2], [2], [2]])
    head = SSDHead([32, 32, 32], boxes.num_anchors_per_location(), 4)
    model = SSD(Pyramid(), boxes, (64, 64), 4, head=head, score_thresh=0.3, topk_candidates=20, detections_per_img=10)
    wake(model.head.classification_head)
    return model.eval()


class Heads(nn.Module):
    """The second stage of a Mask R-CNN: from features and proposals to boxes and to masks in the image."""

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models.detection import MaskRCNN
        from torchvision.models.detection.anchor_utils import AnchorGenerator
        from torchvision.ops import MultiScaleRoIAlign

        torch.manual_seed(0)
        model = MaskRCNN(
            Pyramid(),
            num_classes=4,
            rpn_anchor_generator=AnchorGenerator(((16,), (32,), (64,)), ((1.0,),) * 3),
            box_roi_pool=MultiScaleRoIAlign(["0", "1", "2"], 3, 2),
            mask_roi_pool=MultiScaleRoIAlign(["0", "1", "2"], 6, 2),
            box_score_thresh=0.3,
            box_detections_per_img=10,
        ).eval()
        wake(model.roi_heads)
        self.backbone, self.heads = model.backbone, model.roi_heads

    def forward(self, images: Tensor, proposals: Tensor) -> tuple[Tensor, ...]:
        from torchvision.models.detection.roi_heads import paste_masks_in_image

        size = (images.shape[2], images.shape[3])
        (found,), _ = self.heads(self.backbone(images), [proposals], [size])
        return found["boxes"], found["labels"], found["scores"], paste_masks_in_image(*_masks(found), size)


def _masks(found: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return found["masks"], found["boxes"]


def _cases(bundle: opbridge.Bundle) -> int:
    """How many sets of sizes a bundle was verified at."""
    verification: Any = bundle.verification
    assert bundle.verified, verification
    return len(verification["cases"])


@pytest.mark.sweep
def test_a_detector_is_proved_at_other_sizes(tmp_path: Path) -> None:
    bundle = opbridge.export(small_ssd(), ([torch.rand(3, 40, 50)],), dynamic_shapes=([IMAGE],), path=tmp_path / "ssd")
    assert _cases(bundle) == 5
    session = opbridge.load(bundle.path)
    counts = {len(session(torch.rand(3, 30 + 7 * i, 64).numpy())[0]) for i in range(3)}
    assert counts != {0}


@pytest.mark.sweep
def test_the_second_stage_of_a_mask_rcnn_is_proved_at_other_sizes(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    corners = 40 * torch.rand(12, 2)
    proposals = torch.cat([corners, corners + 8 + 30 * torch.rand(12, 2)], 1)
    bundle = opbridge.export(
        Heads(),
        (torch.rand(1, 3, 64, 96), proposals),
        dynamic_shapes=({2: DYNAMIC, 3: DYNAMIC}, {0: DYNAMIC}),
        path=tmp_path / "heads",
    )
    assert _cases(bundle) == 6


@pytest.mark.slow
def test_images_are_resized_to_the_pixel(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    from torchvision.models.detection.transform import GeneralizedRCNNTransform

    class Prepare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transform = GeneralizedRCNNTransform(96, 160, [0.5] * 3, [0.25] * 3)

        def forward(self, image: Tensor) -> Tensor:
            return self.transform([image])[0].tensors

    model = Prepare().eval()
    bundle = opbridge.export(model, (torch.rand(3, 40, 50),), dynamic_shapes=(IMAGE,), path=tmp_path / "prepare")
    session = opbridge.load(bundle.path)
    for height, width in ((40, 50), (79, 99), (37, 111), (163, 31), (96, 96), (7, 5), (49, 49)):
        image = torch.rand(3, height, width)
        (found,) = session(image.numpy())
        torch.testing.assert_close(torch.from_numpy(found), model(image), rtol=1e-4, atol=1e-4)


def rewrite_of(target: str) -> OpSpec:
    return next(spec for spec in Catalog.load().rewrites() if spec.target == target)


@pytest.mark.parametrize("count", [0, 1, 40])
def test_boxes_are_suppressed_as_torchvision_does(count: int) -> None:
    boxes = pytest.importorskip("torchvision").ops.boxes
    corners = 50 * torch.rand(count, 2, generator=torch.Generator().manual_seed(1))
    given = torch.cat([corners, corners + 20], 1), torch.rand(count), torch.arange(count) % 3, 0.4
    found = rewrite_of("torchvision.ops.boxes.batched_nms").function(boxes.batched_nms, *given)
    assert torch.equal(found, boxes.batched_nms(*given))


@pytest.mark.parametrize("count", [0, 1, 9])
def test_masks_are_pasted_as_torchvision_does(count: int) -> None:
    pytest.importorskip("torchvision")
    from torchvision.models.detection.roi_heads import paste_masks_in_image

    generator = torch.Generator().manual_seed(2)
    corners = 45 * torch.rand(count, 2, generator=generator)
    boxes = torch.cat([corners, corners + 14 * torch.rand(count, 2, generator=generator)], 1)
    given = torch.rand(count, 1, 14, 14, generator=generator), boxes, (50, 60)
    rewrite = rewrite_of("torchvision.models.detection.roi_heads.paste_masks_in_image")
    found = rewrite.function(paste_masks_in_image, *given)
    torch.testing.assert_close(found, paste_masks_in_image(*given), rtol=0, atol=2e-6)


def test_the_rewrites_of_the_catalog_name_functions_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchvision")
    for spec in Catalog.load().rewrites():
        # As a user's rewrite, which has to name something.
        monkeypatch.setattr(spec.function, "__module__", "mine")
        with rewriting([spec]):
            pass


def test_a_rewrite_of_the_catalog_for_a_function_of_another_version_is_left_alone() -> None:
    def replacement(original: Any) -> None: ...

    replacement.__module__ = "opbridge.catalog.ops.nn.example"
    with rewriting([OpSpec("torch.nn.no_such_function", "rewrite", replacement)]) as used:
        assert not list(used)


class SizesInPython(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rows = len(x)
        found = torch.where(x > 0)[0]
        best = x.sum(1).topk(min(5, rows))[0]
        one, other = torch.cat([x, x]).chunk(2)
        part, rest = torch.unsafe_chunk(x, 2)
        cut = torch.kron(part, rest), torch.isin(x.flatten(), rest.flatten()), x.new_zeros(x.numel())
        return best, x.new_zeros(max([rows, x.shape[1]])), found[: min(4, len(found))], one + other, *cut


@pytest.mark.slow
def test_sizes_that_python_asks_for_stay_dynamic() -> None:
    trip = travel(SizesInPython(), (torch.randn(7, 3),), dynamic_shapes=({0: DYNAMIC, 1: DYNAMIC},))
    for rows, columns in ((7, 3), (3, 9), (12, 2)):
        x = torch.randn(rows, columns)
        for found, expected in zip(trip.run(x), SizesInPython()(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), expected)
    assert {"torch.Tensor.chunk", "torch.unsafe_chunk", "torch.kron"} <= set(trip.captured.rewrites)


def test_sizes_that_transformers_makes_whole_stay_dynamic() -> None:
    generic = pytest.importorskip("transformers.utils.generic")

    class Grid(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.new_ones(generic.torch_int(x.shape[0]), generic.torch_int(2.5))

    captured = capture(
        Grid(), (torch.ones(3, 4),), dynamic_shapes={"x": {0: DYNAMIC}}, rewrites=Catalog.load().rewrites()
    )
    assert captured.program.module()(torch.ones(5, 4)).shape == (5, 2)


class ConvertsItsHead(nn.Module):
    """As the routers of transformers, which compute in float32 whatever the model's type."""

    def __init__(self, dtype: torch.dtype, convert: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).to(dtype)
        self.convert = convert

    def forward(self, x: Tensor) -> Tensor:
        self.head = self.convert(self.head)
        return self.head(x.to(self.head[0].weight.dtype)).float()


@pytest.mark.quick("half", every=4)
@pytest.mark.parametrize(
    ("dtype", "convert"),
    [
        (torch.float32, lambda head: head.to("cpu", torch.float32)),
        (torch.bfloat16, lambda head: head.to(torch.float32)),
        (torch.float16, lambda head: head.float()),
        (torch.float32, lambda head: head.double()),
        (torch.float32, lambda head: head.half().bfloat16()),
    ],
    ids=["nothing to convert", "to", "float", "double", "half, bfloat16"],
)
def test_a_module_that_converts_a_part_of_itself(dtype: torch.dtype, convert: Any, tmp_path: Path) -> None:
    model = ConvertsItsHead(dtype, convert).eval()
    head, weight = model.head, model.head[0].weight
    assert opbridge.export(model, (torch.randn(5, 4),), path=tmp_path / "bundle").verified
    assert model.head is head
    assert model.head[0].weight is weight
    assert weight.dtype == dtype


def test_experts_that_transformers_goes_through_one_by_one(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    switch = pytest.importorskip("transformers.models.switch_transformers.modeling_switch_transformers")
    config = transformers.SwitchTransformersConfig(d_model=6, d_ff=5, num_experts=4)
    experts = switch.SwitchTransformersExperts(config).eval()
    selected = torch.tensor([0, 2, 2, 0, 3, 2, 0])  # nobody asks the expert 1
    args = torch.randn(7, 6), nn.functional.one_hot(selected, 4)[:, None], torch.rand(7, 1)
    bundle = opbridge.export(experts, args, path=tmp_path / "bundle", dynamic_shapes=({0: DYNAMIC},) * 3)
    assert bundle.verified
    assert [spec.name for spec in bundle.inputs] == ["hidden_states", "selected_experts", "routing_weights"]
    (result,) = opbridge.load(bundle.path)(*(x.numpy() for x in args))
    torch.testing.assert_close(torch.from_numpy(result), experts(*args))


@pytest.mark.parametrize("causal", [True, False])
def test_convolutions_of_encodec_at_every_length(causal: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    encodec = pytest.importorskip("transformers.models.encodec.modeling_encodec")
    config = transformers.EncodecConfig(use_causal_conv=causal)
    model = encodec.EncodecConv1d(config, 2, 3, 7, stride=3).eval()
    shapes = ({0: DYNAMIC, 2: DYNAMIC},)
    bundle = opbridge.export(model, (torch.randn(2, 2, 40),), path=tmp_path / "bundle", dynamic_shapes=shapes)
    assert bundle.verified
    session = opbridge.load(bundle.path)
    for length in (40, 41, 42, 97, 7, 4, 3, 2):
        x = torch.randn(1, 2, length)
        (found,) = session(x.numpy())
        torch.testing.assert_close(torch.from_numpy(found), model(x), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_pythons_own_functions_come_back() -> None:
    before = builtins.len, builtins.min, builtins.max

    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError(f"{min(len(x), 2)} {max((3, 1), key=lambda n: -n)} {max([], default=4)}")

    with pytest.raises(opbridge.OpbridgeError, match="2 1 4"):
        capture(Fails(), (torch.ones(3),), dynamic_shapes=({0: DYNAMIC},))
    assert (builtins.len, builtins.min, builtins.max) == before


class Cache:
    """As of a language model: no class that torch knows."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.layers = [{"keys": keys}, {"values": values}]
        self.length = 3
        self.owner = self


class WithCache(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"logits": x + 1, "past": Cache(x, x * 2)}


def test_tensors_in_objects_of_any_class_are_outputs(tmp_path: Path) -> None:
    model = WithCache()
    bundle = opbridge.export(model, (torch.randn(2, 3),), path=tmp_path / "cache")
    assert bundle.verified
    names = capture(model, (torch.randn(2, 3),)).output_names
    assert names == ("logits", "past_layers_0_keys", "past_layers_1_values")
    assert isinstance(model(torch.ones(1))["past"], Cache)


@dataclasses.dataclass
class Sampled(OrderedDict):
    """As the outputs of diffusers: a dataclass, a mapping, and registered with torch without the names of its parts."""

    sample: Tensor
    extra: Tensor | None = None

    def __post_init__(self) -> None:
        self.update({name: value for name, value in vars(self).items() if value is not None})


def register(kind: type) -> None:
    torch.utils._pytree.register_pytree_node(
        kind,
        lambda output: (list(output.values()), list(output)),
        lambda values, keys: kind(**dict(zip(keys, values, strict=True))),
    )


@pytest.mark.parametrize("is_registered", [False, True])
def test_outputs_of_a_mapping_class_have_the_names_of_its_keys(is_registered: bool) -> None:
    kind = dataclasses.dataclass(type("Own", (Sampled,), {}))
    if is_registered:
        register(kind)

    def model(x: Tensor) -> Any:
        return kind(sample=x + 1), x - 1

    captured = capture(model, (torch.randn(2),))
    assert captured.output_names == ("output_0_sample", "output_1")
    assert torch.equal(captured.program.module()(torch.zeros(2))[0]["sample"], torch.ones(2))


def test_outputs_of_a_class_registered_without_names() -> None:
    class Pair:
        def __init__(self, values: list[Tensor]) -> None:
            self.values = values

    torch.utils._pytree.register_pytree_node(Pair, lambda pair: (pair.values, None), lambda values, _: Pair(values))

    def model(x: Tensor) -> Any:
        return Pair([x + 1, x - 1])

    assert capture(model, (torch.randn(2),)).output_names == ("output_0", "output_1")


def test_objects_without_tensors_stay_as_they_are() -> None:
    plain = object()
    assert opened([plain, {1}, "text", None])[0] is plain


@pytest.mark.slow
def test_a_size_is_known_at_any_number() -> None:
    rewrites = Catalog.load().rewrites()
    shapes = ({0: DYNAMIC, 1: DYNAMIC},)
    captured = capture(SizesInPython(), (torch.randn(7, 3),), dynamic_shapes=shapes, rewrites=rewrites)
    outputs = captured.program.graph.output_node().args[0]
    assert [size_at(outputs[0].meta["val"].shape[0], number) for number in (3, 64)] == [3, 5]
    assert size_at(9, 64) == 9
