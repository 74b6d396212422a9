"""What torchvision computes on tensors: functions that share their inputs, exported together as one model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torchvision import ops

BOTH = ("float32", "float16")
ENGINES = ("onnxruntime", "openvino")


@dataclasses.dataclass(frozen=True)
class Group:
    """Functions of the same inputs.

    Attributes:
        functions: By a text that begins with the function's name in torchvision.
        make: Makes example inputs.
        sizes: For each input, the letters of its dynamic dimensions, and a dot for each fixed one.
        dtypes: The element types of the floating-point inputs.
        smallest: The smallest height and width of images.
        engines: The engines that can run all of them.
    """

    functions: Mapping[str, Callable[..., Any]]
    make: Callable[[], tuple[Any, ...]]
    sizes: tuple[str, ...]
    dtypes: tuple[str, ...] = BOTH
    smallest: int | None = None
    engines: tuple[str, ...] = ENGINES

    def example(self, dtype: str) -> tuple[Any, ...]:
        """The example inputs, floating-point numbers in one type."""
        torch.manual_seed(0)
        return tuple(x.to(getattr(torch, dtype)) if x.is_floating_point() else x for x in self.make())

    def dynamic_shapes(self) -> tuple[Any, ...]:
        """The dynamic dimensions by name."""
        letters = "".join(self.sizes).replace(".", "")
        dims = {name: torch.export.Dim(name, min=self.smallest if name in "hw" else None) for name in letters}
        return (tuple({axis: dims[name] for axis, name in enumerate(text) if name != "."} for text in self.sizes),)


class Together(nn.Module):
    """The results of all functions of a group."""

    def __init__(self, group: Group, dtype: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.functions = list(group.functions.values())
        self.layers = nn.ModuleList(made for made in self.functions if isinstance(made, nn.Module))
        for parameter in self.layers.parameters():
            nn.init.normal_(parameter, std=0.5)
        self.to(torch.float16 if dtype == "float16" else torch.float32).eval()

    def forward(self, *args: Tensor) -> list[Any]:
        return [function(*args) for function in self.functions]


class Arranged(nn.Module):
    """A module whose arguments are made of a group's inputs."""

    def __init__(self, module: nn.Module, arrange: Callable[..., tuple[Any, ...]]) -> None:
        super().__init__()
        self.module, self.arrange = module, arrange

    def forward(self, *args: Tensor) -> Any:
        return self.module(*self.arrange(*args))


def boxes(count: int, size: float = 20.0) -> Tensor:
    """Boxes with an area."""
    corners = size * torch.rand(count, 2)
    return torch.cat([corners, corners + 1 + size * torch.rand(count, 2)], 1)


def rotated_boxes(count: int) -> Tensor:
    """Boxes (x, y, width, height, degrees)."""
    return torch.cat([20 * torch.rand(count, 2), 1 + 10 * torch.rand(count, 2), 360 * torch.rand(count, 1) - 180], 1)


def rois(count: int, images: int) -> Tensor:
    """Boxes behind the number of their image."""
    return torch.cat([torch.randint(0, images, (count, 1)).float(), boxes(count)], 1)


FORMATS = ("xyxy", "xywh", "cxcywh")
LOSSES = ("generalized_box_iou_loss", "distance_box_iou_loss", "complete_box_iou_loss")
KEPT = {"p": 0.5, "training": False}


def _deformed(x: Tensor, offset: Tensor, mask: Tensor, groups: int = 1, has_mask: bool = True) -> Tensor:
    weight = torch.linspace(-1, 1, 6 * 4 // groups * 9, dtype=x.dtype).reshape(6, -1, 3, 3)
    bias = torch.linspace(-1, 1, 6, dtype=x.dtype)
    return ops.deform_conv2d(x, offset, weight, bias, padding=1, mask=mask if has_mask else None)


def _scales(fine: Tensor, coarse: Tensor, found: Tensor) -> tuple[Any, ...]:
    return {"fine": fine, "coarse": coarse}, [found], [(64, 64)]


OPERATORS: dict[str, Group] = {
    "boxes": Group(
        {
            **{
                f"box_convert {one} {other}": lambda a, b, one=one, other=other: ops.box_convert(a, one, other)
                for one in FORMATS
                for other in FORMATS
            },
            "box_area": lambda a, b: ops.box_area(a),
            "clip_boxes_to_image": lambda a, b: ops.clip_boxes_to_image(a, (15, 17)),
            "box_iou": ops.box_iou,
            "box_iou xywh": lambda a, b: ops.box_iou(a, b, "xywh"),
            "generalized_box_iou": ops.generalized_box_iou,
            "distance_box_iou": ops.distance_box_iou,
            "complete_box_iou": ops.complete_box_iou,
        },
        lambda: (boxes(7), boxes(5)),
        ("n.", "m."),
    ),
    "rotated boxes": Group(
        {f"box_iou {fmt}": lambda a, b, fmt=fmt: ops.box_iou(a, b, fmt) for fmt in ("cxcywhr", "xywhr")},
        lambda: (rotated_boxes(9), rotated_boxes(7)),
        ("n.", "m."),
        ("float32",),
    ),
    "suppression": Group(
        {
            "nms": lambda a, scores, labels: ops.nms(a, scores, 0.3),
            "batched_nms": lambda a, scores, labels: ops.batched_nms(a, scores, labels, 0.3),
            "remove_small_boxes": lambda a, scores, labels: ops.remove_small_boxes(a, 8.0),
        },
        lambda: (boxes(40), torch.rand(40), torch.randint(0, 4, (40,))),
        ("n.", "n", "n"),
        ("float32",),
    ),
    "losses": Group(
        {
            f"{name} {reduction}": lambda a, b, name=name, reduction=reduction: getattr(ops, name)(a, b, reduction)
            for name in LOSSES
            for reduction in ("none", "mean", "sum")
        },
        lambda: (boxes(7), boxes(7)),
        ("n.", "n."),
    ),
    "focal loss": Group(
        {
            f"sigmoid_focal_loss {reduction}": lambda x, y, reduction=reduction: ops.sigmoid_focal_loss(
                x, y, reduction=reduction
            )
            for reduction in ("none", "mean", "sum")
        },
        lambda: (torch.randn(7, 3), torch.randint(0, 2, (7, 3)).float()),
        ("n.", "n."),
    ),
    "masks": Group(
        {"masks_to_boxes": ops.masks_to_boxes}, lambda: (torch.rand(5, 12, 9) > 0.9,), ("nhw",), ("float32",)
    ),
    "pooling": Group(
        {
            "roi_pool": lambda x, found: ops.roi_pool(x, found, (2, 3), 0.5),
            "RoIPool": ops.RoIPool((3, 2), 0.25),
            "ps_roi_pool": lambda x, found: ops.ps_roi_pool(x, found, (2, 3), 0.5),
            "PSRoIPool": ops.PSRoIPool((3, 2), 0.25),
        },
        lambda: (torch.randn(2, 12, 14, 17), rois(9, 2)),
        ("n.hw", "k."),
        ("float32",),
    ),
    "aligned pooling": Group(
        {
            **{
                f"roi_align {ratio} {is_aligned}": lambda x, found, ratio=ratio, is_aligned=is_aligned: ops.roi_align(
                    x, found, (3, 2), 0.5, ratio, is_aligned
                )
                for ratio in (-1, 0, 2)
                for is_aligned in (False, True)
            },
            "roi_align of a list": lambda x, found: ops.roi_align(x, [found[:, 1:], found[:, 1:]], 2),
            "RoIAlign": ops.RoIAlign((2, 3), 0.25, 2, True),
            "ps_roi_align -1": lambda x, found: ops.ps_roi_align(x, found, (2, 3), 0.5),
            "ps_roi_align 2": lambda x, found: ops.ps_roi_align(x, found, (2, 3), 0.5, 2),
            "PSRoIAlign": ops.PSRoIAlign((3, 2), 0.25, 2),
        },
        lambda: (torch.randn(2, 12, 14, 17), rois(9, 2)),
        ("..hw", "k."),
    ),
    "scales": Group(
        {
            "MultiScaleRoIAlign": Arranged(ops.MultiScaleRoIAlign(["fine", "coarse"], 3, 2), _scales),
            "MultiScaleRoIAlign of one level": Arranged(ops.MultiScaleRoIAlign(["fine"], 3, -1), _scales),
        },
        lambda: (torch.randn(1, 4, 16, 16), torch.randn(1, 4, 8, 8), boxes(9, 40.0)),
        ("....", "....", "k."),
        ("float32",),
    ),
    "pyramid": Group(
        {
            "FeaturePyramidNetwork": Arranged(
                ops.FeaturePyramidNetwork([3, 5], 4), lambda fine, coarse: ({"fine": fine, "coarse": coarse},)
            )
        },
        lambda: (torch.randn(2, 3, 12, 10), torch.randn(2, 5, 6, 5)),
        ("n.hw", "n.vu"),
    ),
    "deformable": Group(
        {
            "deform_conv2d": _deformed,
            "deform_conv2d in groups": lambda x, offset, mask: _deformed(x, offset, mask, 2),
            "deform_conv2d without a mask": lambda x, offset, mask: _deformed(x, offset, mask, has_mask=False),
            "DeformConv2d": ops.DeformConv2d(4, 3, 3, padding=1),
        },
        lambda: (torch.randn(2, 4, 7, 8), torch.randn(2, 36, 7, 8), torch.rand(2, 18, 7, 8)),
        ("n.hw", "n.hw", "n.hw"),
        ("float32",),
    ),
    "layers": Group(
        {
            "Conv2dNormActivation": ops.Conv2dNormActivation(4, 6, 3, stride=2, dilation=2),
            "FrozenBatchNorm2d": ops.FrozenBatchNorm2d(4),
            "SqueezeExcitation": ops.SqueezeExcitation(4, 2),
            "Permute": ops.Permute([0, 2, 3, 1]),
            "StochasticDepth": ops.StochasticDepth(0.5, "row"),
            "stochastic_depth": lambda x: ops.stochastic_depth(x, mode="batch", **KEPT) + 1,
            "DropBlock2d": ops.DropBlock2d(0.5, 3),
            "drop_block2d": lambda x: ops.drop_block2d(x, block_size=3, **KEPT) + 1,
            "MLP": Arranged(ops.MLP(4, [6, 3]), lambda x: (x.mean((2, 3)),)),
        },
        lambda: (torch.randn(2, 4, 9, 10),),
        ("n.hw",),
    ),
    "layers of volumes": Group(
        {
            "Conv3dNormActivation": ops.Conv3dNormActivation(2, 3, 3),
            "DropBlock3d": ops.DropBlock3d(0.5, 3),
            "drop_block3d": lambda x: ops.drop_block3d(x, block_size=3, **KEPT) + 1,
        },
        lambda: (torch.randn(2, 2, 5, 6, 7),),
        ("n.dhw",),
    ),
}
