"""Decoding of the boxes predicted by a detector's head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torchvision.models.detection._utils.BoxCoder.decode")
def decode(original: Callable[..., Tensor], self: Any, rel_codes: Tensor, boxes: Sequence[Tensor]) -> Any:
    """Convert offsets (N, 4 x classes) from N boxes (a list of (., 4)) to boxes: (N, classes, 4).

    torchvision checks whether there are any boxes, which is known only at run time. The check is unnecessary.
    """
    if rel_codes.dim() != 2:
        return NotImplemented
    return self.decode_single(rel_codes, torch.cat(list(boxes))).unflatten(1, (-1, 4))
