"""Attention that torch does not map: with dropout, of lengths that depend on data, and with the log-sum-exp."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import decomposition, rewrite


def _scores(query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    """The scaled and masked product of query and key."""
    factor = scale if scale is not None else query.shape[-1] ** -0.5
    scores = (query * factor) @ key.mT
    if is_causal:
        allowed = torch.arange(query.shape[-2]).unsqueeze(-1) >= torch.arange(key.shape[-2])
        scores = _masked(scores, allowed)
    return scores if attn_mask is None else _masked(scores, attn_mask)


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """The scores plus the mask, which is -infinity where a mask of bools is false, as in PyTorch."""
    if mask.dtype != torch.bool:
        return scores + mask
    if keeps_nan():
        return torch.where(mask, scores, -math.inf)
    # The mask has fewer elements than the scores, and a sum is faster than a selection.
    return scores + torch.where(mask, torch.zeros((), dtype=scores.dtype), -math.inf)


def _attended(scores: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float = 0.0) -> Tensor:
    """The values weighted by the softmax of the scores; 0 for rows that are fully masked."""
    weights = torch.softmax(scores, -1)
    if attn_mask is not None and keeps_nan():
        weights = torch.where((scores == -math.inf).all(-1, keepdim=True), 0.0, weights)
    result = (torch.dropout(weights, dropout_p, True) if dropout_p else weights) @ value
    if attn_mask is None or keeps_nan():
        return result
    # The softmax of a fully masked row is NaN, and no other result is.
    return torch.where(result.isnan(), 0.0, result)


@decomposition(
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    overrides="the second result of torch's mapping has a wrong shape",
)
def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention over (N, heads, L, E), softmax(query key^T scale + mask) value, and the log-sum-exp of the scores.

    _scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0.,
    bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)

    The log-sum-exp (N, heads, L) is float32 for float16 and bfloat16, as in PyTorch.
    """
    x, keys, values = (tensor.float() if tensor.dtype.itemsize < 4 else tensor for tensor in (query, key, value))
    scores = _scores(x, keys, attn_mask, is_causal, scale)
    return _attended(scores, values, attn_mask).to(query.dtype), torch.logsumexp(scores, -1)


@decomposition(
    "aten::scaled_dot_product_attention",
    overrides="torch's mapping ignores dropout, and returns NaN for fully masked rows",
)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention of any rank, softmax(query key^T scale + mask) value; 0 for rows that are fully masked.

    scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0,
    bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor
    """
    if enable_gqa:
        key, value = (tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3) for tensor in (key, value))
    return _attended(_scores(query, key, attn_mask, is_causal, scale), value, attn_mask, dropout_p)


@rewrite("torch.nn.functional.scaled_dot_product_attention")
def attention_of_unknown_length(
    original: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor, *options: Any, **named: Any
) -> Tensor:
    """Attention over a number of positions that depends on data, which torch would have to know."""
    if not any(free_unbacked_symbols(size) for tensor in (query, key) for size in tensor.shape):
        return NotImplemented
    return attention(query, key, value, *options, **named)
