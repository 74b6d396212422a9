"""Nodes that are a standard operator, or a few of them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opbridge.vision.old_nodes import OldSite, old_node


@old_node(
    "mmdeploy::GatherTopk",
    source="mmdeploy: docs/en/06-custom-ops/tensorrt.md, mmdeploy/codebase/mmdet/deploy/utils.py",
)
def gather_topk(site: OldSite) -> None:
    """Rows selected in each batch, as indices of all axes but the last; GatherND."""
    op, indices = site.op, site.require(1, "indices")
    rank = site.rank(indices)
    places = op.Unsqueeze(op.cast(indices, ir.DataType.INT64), [-1])
    site.finish(op.GatherND(site.require(0, "data"), places, batch_dims=rank - 1))


@old_node(
    "mmdeploy::TRTInstanceNormalization",
    "mmdeploy::MMCVInstanceNormalization",
    "mmcv::MMCVInstanceNormalization",
    source="mmdeploy: docs/en/06-custom-ops/tensorrt.md, mmdeploy/pytorch/symbolics/instance_norm.py",
)
def instance_norm(site: OldSite) -> None:
    """Instance normalization; InstanceNormalization."""
    inputs = [site.require(position, name) for position, name in enumerate(("input", "scale", "bias"))]
    site.finish(site.op.InstanceNormalization(*inputs, epsilon=float(site.get("epsilon", default=1e-5))))


@old_node("mmdeploy::ScatterND", "mmcv::ScatterND", source="mmdeploy: docs/en/06-custom-ops/tensorrt.md")
def scatter_nd(site: OldSite) -> None:
    """The standard operator, with indices that may be int32."""
    indices = site.op.cast(site.require(1, "indices"), ir.DataType.INT64)
    site.finish(site.op.ScatterND(site.require(0, "data"), indices, site.require(2, "updates")))


@old_node(
    "mmdeploy::GridPriorsTRT",
    source="mmdeploy: docs/en/06-custom-ops/tensorrt.md, "
    "mmdeploy/codebase/mmdet/models/task_modules/prior_generators/anchor.py",
)
def grid_priors(site: OldSite) -> None:
    """The base anchors at each place of a feature map, row by row; the other inputs have the map's sizes."""
    op, anchors = site.op, site.require(0, "base_anchors")
    starts = []
    for position, name in ((1, "stride_h"), (2, "stride_w")):
        count = op.Reshape(op.Shape(site.require(position, name)), op.constant(np.zeros(0, np.int64)))
        numbers = op.Range(np.int64(0), count, np.int64(1))
        starts.append(op.Mul(op.cast(numbers, site.dtype(anchors)), float(site.get(name))))
    rows, columns = op.Unsqueeze(starts[0], [1]), op.Unsqueeze(starts[1], [0])
    zero = op.Mul(op.Add(rows, columns), 0.0)
    y, x = (op.Unsqueeze(op.Add(zero, start), [2, 3]) for start in (rows, columns))
    shifts = op.Concat(x, y, x, y, axis=3)
    site.finish(op.Reshape(op.Add(shifts, anchors), [-1, 4]))
