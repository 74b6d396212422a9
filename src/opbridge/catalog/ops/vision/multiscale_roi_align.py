"""RoI pooling from the level of a feature pyramid that matches the size of each box."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.torch_graph.dimensions import size_at

_LARGE = 2**20
"""A multiple of the sizes to which images are padded."""


@rewrite("torchvision.ops.poolers._multiscale_roi_align")
def multiscale_roi_align(
    original: Callable[..., Tensor],
    x_filtered: list[Tensor],
    boxes: list[Tensor],
    output_size: Sequence[int],
    sampling_ratio: int,
    scales: Sequence[float] | None,
    mapper: Any,
) -> Any:
    """Pool each box from its level, with a result of (boxes, channels, *output_size).

    torchvision reads the number of boxes with ``len``, which does not support a number that depends on data.
    """
    if scales is None or mapper is None or len(x_filtered) == 1:
        return NotImplemented
    from torchvision.ops import roi_align

    numbered = [torch.cat([torch.full_like(part[:, :1], i), part], 1) for i, part in enumerate(boxes)]
    rois = torch.cat(numbered)
    levels = mapper(boxes)
    features = x_filtered[0]
    result = features.new_zeros(rois.shape[0], features.shape[1], *output_size)
    for level, (feature, scale) in enumerate(zip(x_filtered, scales, strict=True)):
        places = torch.where(levels == level)[0]
        pooled = roi_align(feature, rois[places], tuple(output_size), scale, sampling_ratio)
        result = result.index_put((places,), pooled.to(result.dtype))
    return result


@rewrite("torchvision.ops.poolers._infer_scale")
def infer_scale(original: Callable[..., float], feature: Tensor, original_size: Sequence[Any]) -> float:
    """The power of two that is the ratio of a feature map to its image.

    The ratio is a property of the network, so a large image determines it, apart from rounding.
    """
    return float(2 ** round(math.log2(size_at(feature.shape[-2], _LARGE) / size_at(original_size[0], _LARGE))))
