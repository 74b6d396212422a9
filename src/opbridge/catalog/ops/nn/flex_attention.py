"""Attention whose scores are changed and masked by functions of the positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.torch_graph import internals as torch_internals


@rewrite("torch.nn.attention.flex_attention.flex_attention")
def flex_attention(
    original: Callable[..., Any],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """Attention over the whole matrix of scores, as PyTorch computes it on a CPU without ``torch.compile``.

    ``block_mask`` stands for its ``mask_mod``, because the blocks only tell a kernel what it need not compute.
    """
    if any(tensor.dim() != 4 for tensor in (query, key, value)):
        return NotImplemented
    groups = query.shape[1] // key.shape[1]
    if groups != 1 and not enable_gqa:
        return NotImplemented
    key, value = (tensor.repeat_interleave(groups, dim=1) if groups > 1 else tensor for tensor in (key, value))
    scores = _scores(query, key, score_mod, block_mask, 1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    highest = scores.amax(-1, keepdim=True)
    # A row without any allowed position has weights of 0, and not NaN.
    weights = torch.where(highest == -math.inf, 0, scores.softmax(-1))
    output = weights.to(query.dtype) @ value
    lse, highest = scores.logsumexp(-1), highest.squeeze(-1)
    if return_aux is not None:
        from torch.nn.attention.flex_attention import AuxOutput

        return output, AuxOutput(lse if return_aux.lse else None, highest if return_aux.max_scores else None)
    return (output, lse) if return_lse else output


def _scores(query: Tensor, key: Tensor, score_mod: Any, block_mask: Any, scale: float) -> Tensor:
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(working) @ key.to(working).mT * scale
    positions = [torch.arange(size) for size in scores.shape]
    with torch_internals.indexing_by_position():
        changed = scores if score_mod is None else _over_positions(score_mod, (0,))(scores, *positions)
        if block_mask is None or block_mask.mask_mod is None:
            return changed
        return torch.where(_over_positions(block_mask.mask_mod, ())(*positions), changed, -math.inf)


def _over_positions(function: Callable[..., Tensor], leading: tuple[int, ...]) -> Callable[..., Tensor]:
    """The function of one batch, head, query and key for all of them; ``leading`` are axes of arguments before."""
    for mapped in (3, 2, 1, 0):
        axes = tuple(0 if axis == mapped else None for axis in range(4))
        function = torch.vmap(function, in_dims=(*leading, *axes))
    return function
