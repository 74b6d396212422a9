"""Attention that torch does not map: with dropout, and with the log-sum-exp as a second result."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


def _scores(query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    """The scaled and masked product of query and key."""
    factor = scale if scale is not None else query.shape[-1] ** -0.5
    scores = (query * factor) @ key.mT
    if is_causal:
        allowed = torch.arange(query.shape[-2]).unsqueeze(-1) >= torch.arange(key.shape[-2])
        scores = torch.where(allowed, scores, -math.inf)
    if attn_mask is None:
        return scores
    return torch.where(attn_mask, scores, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask


def _weights(scores: Tensor, attn_mask: Tensor | None) -> Tensor:
    """Softmax; 0 for rows that are fully masked."""
    weights = torch.softmax(scores, -1)
    if attn_mask is None:
        return weights
    return torch.where((scores == -math.inf).all(-1, keepdim=True), 0.0, weights)


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
    return (_weights(scores, attn_mask) @ values).to(query.dtype), torch.logsumexp(scores, -1)


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
    weights = _weights(_scores(query, key, attn_mask, is_causal, scale), attn_mask)
    return (torch.dropout(weights, dropout_p, True) if dropout_p else weights) @ value
