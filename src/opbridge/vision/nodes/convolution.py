"""Deformable convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.vision.old_nodes import OldSite, old_node


@old_node(
    "mmdeploy::MMCVModulatedDeformConv2d",
    "mmcv::MMCVModulatedDeformConv2d",
    source="mmdeploy: docs/en/06-custom-ops/onnxruntime.md, mmdeploy/mmcv/ops/modulated_deform_conv.py; "
    "mmcv: mmcv/ops/modulated_deform_conv.py",
)
def modulated_deform_conv(site: OldSite) -> None:
    """Deformable convolution, version 2: inputs x, offset, mask, weight, bias."""
    _deform_conv(site, mask=site.require(2, "mask"), weight=site.require(3, "weight"), bias=site.input(4))


@old_node(
    "mmdeploy::MMCVDeformConv2d",
    "mmcv::MMCVDeformConv2d",
    source="mmdeploy: mmdeploy/mmcv/ops/deform_conv.py; mmcv: mmcv/ops/deform_conv.py",
)
def deform_conv(site: OldSite) -> None:
    """Deformable convolution, version 1: inputs x, offset, weight; MMDeploy writes each padding twice."""
    _deform_conv(site, mask=None, weight=site.require(2, "weight"), bias=None)


def _deform_conv(site: OldSite, mask: ir.Value | None, weight: ir.Value, bias: ir.Value | None) -> None:
    image, offset = site.require(0, "input"), site.require(1, "offset")
    dtype = site.dtype(image)
    if bias is None:
        filters = site.op.Slice(site.op.Shape(weight), [0], [1])
        bias = site.op.ConstantOfShape(filters, value=ir.tensor(np.zeros(1, dtype.numpy())))
    padding = _pair(site.get("padding"))
    strides, dilations = _pair(site.get("stride")), _pair(site.get("dilation"))
    result = site.operator(
        "torchvision::deform_conv2d",
        *(image, weight, offset, site.op.like([[0]], image) if mask is None else mask, bias),
        dtype=dtype,
        sizes=[site.size(image, 0), site.size(weight, 0), site.size(offset, 2), site.size(offset, 3)],
        stride_h=strides[0],
        stride_w=strides[1],
        pad_h=padding[0],
        pad_w=padding[1],
        dilation_h=dilations[0],
        dilation_w=dilations[1],
        groups=site.get("groups", "group", default=1),
        offset_groups=site.get("deform_groups", "deformable_groups", "deformable_group", default=1),
        use_mask=int(mask is not None),
    )
    site.finish(result)


def _pair(numbers: Any) -> tuple[int, int]:
    """One number for each axis, of one for both, of two, or of four that begin and end each axis."""
    listed = numbers if isinstance(numbers, list) else [numbers]
    return listed[0], listed[len(listed) // 2]
