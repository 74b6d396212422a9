"""Boxes from what a detector's head gives for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torchvision.models.detection._utils.BoxCoder.decode")
def decode(original: Callable[..., Tensor], self: Any, rel_codes: Tensor, boxes: Sequence[Tensor]) -> Any:
    """Offsets (N, 4 x classes) from N boxes (list of (., 4)) as boxes: (N, classes, 4).

    torchvision asks whether there is a box at all, which is known only when the model runs. Nothing depends on it: no
    boxes decode to none.
    """
    if rel_codes.dim() != 2:
        return NotImplemented
    return self.decode_single(rel_codes, torch.cat(list(boxes))).unflatten(1, (-1, 4))
