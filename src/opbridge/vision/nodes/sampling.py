"""Nodes that sample images: at grids, in boxes, at another size."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.vision.old_nodes import OldSite, old_node

_PADDING = ("zeros", "border", "reflection")


@old_node(
    "mmdeploy::grid_sampler",
    "mmcv::grid_sampler",
    opset=16,
    source="mmdeploy: docs/en/06-custom-ops/onnxruntime.md, mmdeploy/pytorch/symbolics/grid_sampler.py",
)
def grid_sampler(site: OldSite) -> None:
    """torch.nn.functional.grid_sample, with its modes as numbers; GridSample."""
    modes = ("linear", "nearest", "cubic") if site.target >= 20 else ("bilinear", "nearest", "bicubic")
    made = site.op.GridSample(
        site.require(0, "input"),
        site.require(1, "grid"),
        mode=modes[site.get("interpolation_mode", default=0)],
        padding_mode=_PADDING[site.get("padding_mode", default=0)],
        align_corners=int(site.get("align_corners", default=0)),
    )
    site.finish(made)


@old_node(
    "mmdeploy::MMCVRoiAlign",
    "mmdeploy::MMCVRoIAlign",
    "mmcv::MMCVRoiAlign",
    opset=16,
    source="mmdeploy: docs/en/06-custom-ops/tensorrt.md, mmdeploy/mmcv/ops/roi_align.py",
)
def roi_align(site: OldSite) -> None:
    """Boxes as rows of (image, x1, y1, x2, y2); RoiAlign."""
    if site.get("mode", default="avg") != "avg":
        raise CannotExpress("mode 'max' is the largest sample of a bin, which no standard operator computes")
    images, boxes = _split(site, site.require(1, "rois"))
    site.finish(_roi_align(site, site.require(0, "input"), boxes, images, site.get("spatial_scale", default=1.0)))


@old_node(
    "mmdeploy::MMCVMultiLevelRoiAlign",
    opset=16,
    source="mmdeploy: docs/en/06-custom-ops/tensorrt.md, mmdeploy/codebase/mmdet/models/roi_heads/"
    "single_level_roi_extractor.py, csrc/mmdeploy/backend_ops/tensorrt/multi_level_roi_align",
)
def multi_level_roi_align(site: OldSite) -> None:
    """Each box is sampled from the level that its area selects; one RoiAlign for each level."""
    if site.get("pool_mode", default=1) != 1:
        raise CannotExpress("pool_mode 0 is the largest sample of a bin, which no standard operator computes")
    op, rois = site.op, site.require(0, "rois")
    corners = op.Split(op.Gather(rois, [1, 2, 3, 4], axis=1), [1, 1, 1, 1], axis=1, outputs=4)
    width, height = op.Sub(corners[2], corners[0]), op.Sub(corners[3], corners[1])
    level = _level(site, op.Mul(width, height))
    factor = site.get("roi_scale_factor", default=-1.0)
    scaled = rois
    if factor > 0:
        # The scaled size counts the last pixel too.
        centre = [op.Mul(op.Add(corners[k], corners[k + 2]), 0.5) for k in (0, 1)]
        half = [op.Sub(op.Mul(op.Add(size, 1.0), factor / 2), 0.5) for size in (width, height)]
        first = op.Gather(rois, [0], axis=1)
        moved = [op.Sub(centre[k], half[k]) for k in (0, 1)] + [op.Add(centre[k], half[k]) for k in (0, 1)]
        scaled = op.Concat(first, *moved, axis=1)

    def align(feature: ir.Value, chosen: ir.Value, scale: float) -> ir.Value:
        images, boxes = _split(site, chosen)
        return _roi_align(site, feature, boxes, images, scale)

    site.finish(_by_level(site, scaled, level, align))


@old_node(
    "mmdeploy::MMCVRoIAlignRotated",
    "mmdeploy::RoIAlignRotated",
    "mmcv::MMCVRoIAlignRotated",
    source="mmdeploy: docs/en/06-custom-ops/onnxruntime.md, mmdeploy/mmcv/ops/roi_align_rotated.py; "
    "mmcv: mmcv/ops/roi_align_rotated.py",
)
def roi_align_rotated(site: OldSite) -> None:
    """Boxes as rows of (image, centre x, centre y, width, height, angle in radians)."""
    scale = site.get("spatial_scale", default=1.0)
    site.finish(_roi_align_rotated(site, site.require(0, "input"), site.require(1, "rois"), scale))


@old_node(
    "mmdeploy::MMCVMultiLevelRotatedRoiAlign",
    source="mmdeploy: mmdeploy/codebase/mmrotate/models/roi_heads/roi_extractors.py, "
    "csrc/mmdeploy/backend_ops/tensorrt/multi_level_rotated_roi_align",
)
def multi_level_rotated_roi_align(site: OldSite) -> None:
    """Each box is sampled from the level that its area selects; the factor of the boxes scales width and height."""
    op, rois = site.op, site.require(0, "rois")
    size = op.Gather(rois, [3, 4], axis=1)
    level = _level(site, op.ReduceProd(size, axes=[1]) if site.target < 18 else op.ReduceProd(size, [1]))
    factor = site.get("roi_scale_factor", default=-1.0)
    if factor > 0:
        factors = np.array([1, 1, 1, factor, factor, 1], site.dtype(rois).numpy())
        rois = op.Mul(rois, factors)
    site.finish(_by_level(site, rois, level, functools.partial(_roi_align_rotated, site)))


@old_node(
    "mmdeploy::TRTBicubicInterpolate",
    source="mmdeploy: mmdeploy/pytorch/functions/interpolate.py",
)
def bicubic(site: OldSite) -> None:
    """torch.nn.functional.interpolate with mode 'bicubic' and scale factors; Resize."""
    factors = site.get("scale_factor")
    scales = site.op.constant(np.array([1, 1, factors[0], factors[-1]], np.float32))
    made = site.op.Resize(
        site.require(0, "input"),
        None,
        scales,
        mode="cubic",
        cubic_coeff_a=-0.75,
        coordinate_transformation_mode="align_corners" if site.get("align_corners", default=0) else "half_pixel",
    )
    site.finish(made)


def _split(site: OldSite, rois: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The image of each box as int64, and the corners."""
    op = site.op
    images = op.Cast(op.Gather(rois, np.int64(0), axis=1), to=int(ir.DataType.INT64))
    return images, op.Gather(rois, [1, 2, 3, 4], axis=1)


def _roi_align(site: OldSite, image: ir.Value, boxes: ir.Value, images: ir.Value, scale: float) -> ir.Value:
    made: ir.Value = site.op.RoiAlign(
        *(image, boxes, images),
        output_height=site.get("output_height"),
        output_width=site.get("output_width"),
        spatial_scale=float(scale),
        sampling_ratio=max(site.get("sampling_ratio", default=0), 0),
        coordinate_transformation_mode="half_pixel" if site.get("aligned", default=1) else "output_half_pixel",
    )
    return made


def _roi_align_rotated(site: OldSite, image: ir.Value, rois: ir.Value, scale: float) -> ir.Value:
    bins = {name: site.get(name) for name in ("output_height", "output_width")}
    made: ir.Value = site.operator(
        "opbridge_vision::roi_align_rotated",
        *(image, rois),
        dtype=site.dtype(image),
        sizes=[site.size(rois, 0), site.size(image, 1), *bins.values()],
        **bins,
        spatial_scale=float(scale),
        sampling_ratio=site.get("sampling_ratio", default=0),
        aligned=site.get("aligned", default=1),
        clockwise=site.get("clockwise", default=0),
    )
    return made


def _level(site: OldSite, areas: ir.Value) -> ir.Value:
    """The level of each box, (boxes,): the logarithm of its size over ``finest_scale``, rounded down."""
    op = site.op
    size = op.Div(op.Sqrt(areas), float(site.get("finest_scale", default=56)))
    level = op.Floor(op.Div(op.Log(op.Add(size, 1e-6)), float(np.log(2.0))))
    last = len(site.get("featmap_strides")) - 1
    return op.Reshape(op.Clip(level, op.like(0, level), op.like(last, level)), [-1])


def _by_level(
    site: OldSite, rois: ir.Value, level: ir.Value, align: Callable[[ir.Value, ir.Value, float], ir.Value]
) -> ir.Value:
    """The result of each box, computed together with the other boxes of its level."""
    op, dtype = site.op, site.dtype(rois)
    sizes = site.op.constant(np.array([site.get("output_height"), site.get("output_width")], np.int64))
    first = site.require(1, "the first feature map")
    shape = op.Concat(op.Slice(op.Shape(rois), [0], [1]), op.Slice(op.Shape(first), [1], [2]), sizes, axis=0)
    result = op.ConstantOfShape(shape, value=ir.tensor(np.zeros(1, dtype.numpy())))
    for number, stride in enumerate(site.get("featmap_strides")):
        chosen = op.Transpose(op.NonZero(op.Equal(level, op.like(number, level))), perm=[1, 0])
        feature = site.require(1 + number, f"feature map {number}")
        result = op.ScatterND(result, chosen, align(feature, op.GatherND(rois, chosen), 1 / stride))
    # Shape inference does not know the rank of a constant of a computed shape.
    bins = (site.get(name) for name in ("output_height", "output_width"))
    result.shape = ir.Shape([site.size(rois, 0), site.size(first, 1), *bins])
    return result
