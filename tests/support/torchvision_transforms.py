"""The functions of ``torchvision.transforms.v2.functional`` that take tensors, grouped by their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as F
from torchvision.tv_tensors import BoundingBoxFormat
from torchvision_cases import Group, boxes

CANVAS = (20, 24)
CORNERS = ([[0, 0], [15, 0], [15, 11], [0, 11]], [[2, 1], [14, 0], [13, 10], [0, 9]])
MOVED = {"angle": 25.0, "translate": [2.0, -1.0], "scale": 1.2, "shear": [5.0, 3.0]}
RIGHT = BoundingBoxFormat.XYXY

Function = Callable[..., Any]

ONE_ENGINE = ("onnxruntime",)
"""OpenVINO computes float64 in float32 on the CPU, which opbridge refuses; its Resize with antialiasing is inexact."""

GEOMETRY: dict[str, Function] = {
    "horizontal_flip": F.horizontal_flip,
    "vertical_flip": F.vertical_flip,
    **{
        f"resize {mode} {antialias}": lambda x, mode=mode, antialias=antialias: F.resize(
            x, [9, 31], mode, antialias=antialias
        )
        for mode, antialias in (
            *(("bilinear", True), ("bilinear", False), ("bicubic", True), ("bicubic", False)),
            *(("nearest", False), ("nearest-exact", False), ("lanczos", True)),
        )
    },
    "rotate bilinear": lambda x: F.rotate(x, 30.0, "bilinear"),
    "rotate nearest": lambda x: F.rotate(x, -75.0, "nearest", fill=[0.5, 0.25, 1.0], center=[3.0, 5.0]),
    "affine": lambda x: F.affine(x, interpolation="bilinear", **MOVED),
    "perspective": lambda x: F.perspective(x, *CORNERS, "bilinear"),
    "crop outside": lambda x: F.crop(x, -2, -3, 9, 8),
    **{
        f"pad {mode}": lambda x, mode=mode: F.pad(x, [1, 2, 3, 4], 0.0, mode)
        for mode in ("constant", "edge", "reflect", "symmetric")
    },
    "pad with a color": lambda x: F.pad(x, [1, 2], [0.5, 0.25, 1.0]),
    "erase": lambda x: F.erase(x, 1, 2, 4, 3, torch.zeros(3, 4, 3, dtype=x.dtype)),
}

CROPS: dict[str, Function] = {
    "crop inside": lambda x: F.crop(x, 2, 3, 7, 6),
}

CENTRAL_CROPS: dict[str, Function] = {
    "center_crop": lambda x: F.center_crop(x, [7, 8]),
    "five_crop": lambda x: F.five_crop(x, [6, 5]),
    "ten_crop": lambda x: F.ten_crop(x, [6, 5]),
    "resized_crop": lambda x: F.resized_crop(x, 2, 3, 7, 6, [12, 5]),
}
"""Half of a size is rounded in float64."""

COLORS: dict[str, Function] = {
    "adjust_brightness": lambda x: F.adjust_brightness(x, 1.3),
    "adjust_contrast": lambda x: F.adjust_contrast(x, 1.3),
    "adjust_saturation": lambda x: F.adjust_saturation(x, 1.3),
    "adjust_gamma": lambda x: F.adjust_gamma(x, 1.5, 0.9),
    "adjust_sharpness": lambda x: F.adjust_sharpness(x, 1.7),
    "autocontrast": F.autocontrast,
    "equalize": F.equalize,
    "invert": F.invert,
    "posterize": lambda x: F.posterize(x, 3),
    "solarize": lambda x: F.solarize(x, 0.4),
    "rgb_to_grayscale": lambda x: F.rgb_to_grayscale(x, 3),
    "grayscale_to_rgb": lambda x: F.grayscale_to_rgb(x[..., :1, :, :]),
    "permute_channels": lambda x: F.permute_channels(x, [2, 0, 1]),
    "gaussian_blur": lambda x: F.gaussian_blur(x, [3, 5], [0.8, 1.2]),
    "to_dtype": lambda x: F.to_dtype(x, torch.uint8 if x.is_floating_point() else torch.float32, scale=True),
    "convert_image_dtype": lambda x: F.convert_image_dtype(x, torch.float64),
}

NORMALIZE: dict[str, Function] = {"normalize": lambda x: F.normalize(x, [0.4, 0.5, 0.6], [0.2, 0.3, 0.4])}


def _image() -> Tensor:
    return torch.rand(2, 3, 12, 16)


def _bytes() -> Tensor:
    return torch.randint(0, 256, (2, 3, 12, 16)).to(torch.uint8)


def _of(kind: str, **functions: Function) -> dict[str, Function]:
    return {f"{name}_{kind}": function for name, function in functions.items()}


TRANSFORMS: dict[str, Group] = {
    "geometry": Group(GEOMETRY, lambda: (_image(),), ("n.hw",), ("float32",), 10, ONE_ENGINE),
    "crops": Group(CROPS, lambda: (_image(),), ("n.hw",), ("float32",), 10),
    "central crops": Group(CENTRAL_CROPS, lambda: (_image(),), ("n.hw",), ("float32",), 10, ONE_ENGINE),
    "central crops of bytes": Group(CENTRAL_CROPS, lambda: (_bytes(),), ("n.hw",), ("uint8",), 10, ONE_ENGINE),
    "resizing of bytes": Group(
        {name: function for name, function in GEOMETRY.items() if name.startswith("resize ")},
        lambda: (_bytes(),),
        ("n.hw",),
        ("uint8",),
        4,
        ONE_ENGINE,
    ),
    "colors": Group(COLORS | NORMALIZE, lambda: (_image(),), ("n.hw",), ("float32",), 4),
    "colors of bytes": Group(COLORS, lambda: (_bytes(),), ("n.hw",), ("uint8",), 4, ONE_ENGINE),
    "hue": Group({"adjust_hue": lambda x: F.adjust_hue(x, 0.2)}, lambda: (_image(),), ("....",), ("float32",)),
    "elastic": Group(
        {"elastic": lambda x, moved: F.elastic(x, moved, "bilinear")},
        lambda: (_image(), 0.1 * torch.randn(1, 12, 16, 2)),
        ("n.hw", ".hw."),
        ("float32",),
    ),
    "moved boxes": Group(
        _of(
            "bounding_boxes",
            horizontal_flip=lambda b: F.horizontal_flip_bounding_boxes(b, RIGHT, CANVAS),
            vertical_flip=lambda b: F.vertical_flip_bounding_boxes(b, RIGHT, CANVAS),
            resize=lambda b: F.resize_bounding_boxes(b, CANVAS, [10, 30])[0],
            affine=lambda b: F.affine_bounding_boxes(b, RIGHT, CANVAS, **MOVED),
            rotate=lambda b: F.rotate_bounding_boxes(b, RIGHT, CANVAS, 30.0)[0],
            pad=lambda b: F.pad_bounding_boxes(b, RIGHT, CANVAS, [1, 2, 3, 4])[0],
            crop=lambda b: F.crop_bounding_boxes(b, RIGHT, 2, 3, 9, 8)[0],
            center_crop=lambda b: F.center_crop_bounding_boxes(b, RIGHT, CANVAS, [9, 8])[0],
            resized_crop=lambda b: F.resized_crop_bounding_boxes(b, RIGHT, 2, 3, 9, 8, [12, 5])[0],
            perspective=lambda b: F.perspective_bounding_boxes(b, RIGHT, CANVAS, *CORNERS),
            clamp=lambda b: F.clamp_bounding_boxes(b, RIGHT, CANVAS, "soft"),
            sanitize=lambda b: F.sanitize_bounding_boxes(b, RIGHT, CANVAS),
        )
        | {"convert_bounding_box_format": lambda b: F.convert_bounding_box_format(b, RIGHT, BoundingBoxFormat.CXCYWH)},
        lambda: (boxes(9),),
        ("n.",),
        ("float32",),
        engines=ONE_ENGINE,
    ),
    "moved keypoints": Group(
        _of(
            "keypoints",
            horizontal_flip=lambda p: F.horizontal_flip_keypoints(p, CANVAS),
            vertical_flip=lambda p: F.vertical_flip_keypoints(p, CANVAS),
            resize=lambda p: F.resize_keypoints(p, [10, 30], CANVAS)[0],
            affine=lambda p: F.affine_keypoints(p, CANVAS, **MOVED)[0],
            rotate=lambda p: F.rotate_keypoints(p, CANVAS, 30.0)[0],
            pad=lambda p: F.pad_keypoints(p, CANVAS, [1, 2, 3, 4])[0],
            crop=lambda p: F.crop_keypoints(p, 2, 3, 9, 8)[0],
            center_crop=lambda p: F.center_crop_keypoints(p, CANVAS, [9, 8])[0],
            resized_crop=lambda p: F.resized_crop_keypoints(p, 2, 3, 9, 8, [12, 5])[0],
            perspective=lambda p: F.perspective_keypoints(p, CANVAS, *CORNERS),
            clamp=lambda p: F.clamp_keypoints(p, CANVAS),
            sanitize=lambda p: F.sanitize_keypoints(p, CANVAS),
        ),
        lambda: (25 * torch.rand(9, 2),),
        ("n.",),
        ("float32",),
        engines=ONE_ENGINE,
    ),
    "moved masks": Group(
        _of(
            "mask",
            horizontal_flip=F.horizontal_flip_mask,
            vertical_flip=F.vertical_flip_mask,
            resize=lambda m: F.resize_mask(m, [9, 31]),
            affine=lambda m: F.affine_mask(m, **MOVED),
            rotate=lambda m: F.rotate_mask(m, 30.0),
            pad=lambda m: F.pad_mask(m, [1, 2, 3, 4]),
            perspective=lambda m: F.perspective_mask(m, *CORNERS),
        ),
        lambda: (torch.randint(0, 2, (5, 12, 16)).to(torch.uint8),),
        ("nhw",),
        ("uint8",),
        10,
        ONE_ENGINE,
    ),
    "cropped masks": Group(
        _of(
            "mask",
            crop=lambda m: F.crop_mask(m, 2, 3, 7, 6),
            center_crop=lambda m: F.center_crop_mask(m, [7, 8]),
            resized_crop=lambda m: F.resized_crop_mask(m, 2, 3, 7, 6, [12, 5]),
        ),
        lambda: (torch.randint(0, 2, (5, 12, 16)).to(torch.uint8),),
        ("nhw",),
        ("uint8",),
        10,
        ONE_ENGINE,
    ),
}
