"""The question whether the mask of a transformer is causal."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.nn.modules.transformer._detect_is_causal_mask")
def is_causal_mask(
    original: Callable[..., bool], mask: Tensor | None, is_causal: bool | None = None, size: int | None = None
) -> bool:
    """What the caller says; PyTorch would compare the values of the mask, which a capture does not know.

    The answer only lets attention take a faster path: a mask that is given applies either way.
    """
    return is_causal is True
