"""The outputs of a transformer encoder at padded positions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.nn.modules.transformer.TransformerEncoder.forward")
def encode(
    original: Callable[..., Tensor],
    self: Any,
    src: Tensor,
    mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool | None = None,
) -> Tensor:
    """The result of the layers, with zeros at padded positions where PyTorch has zeros, and normalized.

    In inference, PyTorch computes with nested tensors if the padding is at the end of every row: padded positions are
    then zero before the last normalization. torch.export captures the other way, which computes numbers there.
    """
    if src_key_padding_mask is None or not _skips_padding(self, src, mask):
        return original(self, src, mask, src_key_padding_mask, is_causal)
    layers = copy.copy(self)
    layers._modules = {**self._modules, "norm": None}
    layers.use_nested_tensor = False
    output = original(layers, src, mask, src_key_padding_mask, is_causal)
    is_padding = src_key_padding_mask.ne(0)
    if getattr(self, "mask_check", True):
        is_padding = is_padding & (is_padding[:, 1:].int() >= is_padding[:, :-1].int()).all()
    output = output.masked_fill(is_padding[..., None], 0.0)
    return output if self.norm is None else self.norm(output)


def _skips_padding(self: Any, src: Tensor, mask: Tensor | None) -> bool:
    """Whether PyTorch computes with nested tensors in inference, if the mask of a run allows it."""
    return (
        mask is None
        and src.dim() == 3
        and getattr(self, "use_nested_tensor", False)
        and torch.backends.mha.get_fastpath_enabled()
        and not torch.is_autocast_enabled("cpu")
    )
