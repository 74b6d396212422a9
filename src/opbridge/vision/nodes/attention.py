"""Attention."""

from __future__ import annotations

import math

import onnx_ir as ir

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.vision.old_nodes import OldSite, old_node


@old_node(
    "mmdeploy::MMCVMultiScaleDeformableAttention",
    source="mmdeploy: docs/en/06-custom-ops/tensorrt.md, mmdeploy/mmcv/ops/multi_scale_deform_attn.py",
)
def ms_deform_attn(site: OldSite) -> None:
    """Multi-scale deformable attention; im2col_step has no effect on the result."""
    value, shapes, starts, locations, weights = (
        site.require(position, name)
        for position, name in enumerate(
            ("value", "spatial_shapes", "level_start_index", "sampling_locations", "attention_weights")
        )
    )
    site.equate((value, 0), (locations, 0), (weights, 0))
    site.equate((value, 2), (locations, 2), (weights, 2))
    for axis in (1, 3, 4):
        site.equate((locations, axis), (weights, axis))
    made = site.operator(
        "opbridge_vision::ms_deform_attn",
        *(value, site.op.cast(shapes, ir.DataType.INT64), site.op.cast(starts, ir.DataType.INT64), locations, weights),
        dtype=site.dtype(value),
        sizes=[site.size(value, 0), site.size(locations, 1), None],
    )
    site.finish(made)


@old_node(
    "mmdeploy::ScaledDotProductAttentionTRT",
    source="mmdeploy: docs/en/06-custom-ops/tensorrt.md, mmdeploy/pytorch/functions/multi_head_attention_forward.py",
)
def scaled_dot_product_attention(site: OldSite) -> None:
    """Attention with its weights as the second output. The query is scaled, which the document does not say."""
    op = site.op
    query, key, value, mask = (site.input(position) for position in range(4))
    if query is None or key is None or value is None:
        raise CannotExpress("it has no query, key or value")
    channels = None if query.shape is None else query.shape[2]
    if not isinstance(channels, int):
        raise CannotExpress("the number of channels is not known")
    scores = op.MatMul(op.Div(query, math.sqrt(channels)), op.Transpose(key, perm=[0, 2, 1]))
    if mask is not None:
        scores = op.Add(scores, mask)
    weights = op.Softmax(scores, axis=-1)
    site.finish(op.MatMul(weights, value), weights)
