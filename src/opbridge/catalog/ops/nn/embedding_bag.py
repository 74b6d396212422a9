"""Sums, means and maxima over bags of embeddings: ONNX nodes without a loop over the bags, or a node with a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from onnxscript import INT64
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation, rewrite
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::EmbeddingBag", "embedding_bag.h")

_SUM, _MAX = 0, 2
_WHY = "torch's mapping loops over the bags, and computes in float32"


@decomposition("aten::embedding_bag", overrides=_WHY)
@decomposition("aten::embedding_bag.padding_idx", overrides=_WHY)
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum, mean or maximum over the rows of ``weight`` that the indices of each bag select; 0 for an empty bag.

    embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0,
    bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False) -> (Tensor, Tensor, Tensor,
    Tensor)
    embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int mode,
    bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor,
    Tensor)

    With ``include_last_offset``, indices after the last offset belong to the last bag, as in PyTorch's kernels for
    float64 and for maxima; PyTorch's fast float32 kernels ignore them in sums. Documented are only last offsets with no
    indices after them.

    The other three results are for the backward pass: the bag of each index, the sizes of the bags (zeros for sums),
    and for maxima the index of each maximum.
    """
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return torch.ops.aten._embedding_bag_forward_only(  # type: ignore[no-any-return]
        weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding
    )


@decomposition("aten::_embedding_bag", overrides=_WHY)
@decomposition("aten::_embedding_bag_forward_only", overrides=_WHY)
def embedding_bag_forward(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The operator that ``embedding_bag`` calls; a ``padding_idx`` of -1 means no padding.

    _embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0,
    bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> (Tensor,
    Tensor, Tensor, Tensor)
    _embedding_bag_forward_only(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False,
    int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False,
    int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)
    """
    dtype = torch.promote_types(indices.dtype, offsets.dtype)
    starts = (offsets[:-1] if include_last_offset else offsets).long()
    bag = torch.searchsorted(starts, torch.arange(indices.shape[0]), right=True) - 1
    rows = weight.index_select(0, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    neutral = -math.inf if mode == _MAX else 0
    counts = torch.ones_like(bag)
    if padding_idx >= 0:
        is_padding = indices == padding_idx
        rows = torch.where(is_padding.unsqueeze(1), neutral, rows)
        counts = torch.where(is_padding, 0, counts)
    sizes = torch.zeros_like(starts).index_add(0, bag, counts)
    if mode == _MAX:
        largest, which = _largest(rows, indices, bag, counts > 0, sizes)
        return largest, bag.to(dtype), sizes.to(dtype), which.to(dtype)
    total = _nothing(rows, starts).index_add(0, bag, rows)
    if mode == _SUM:
        return total, bag.to(dtype), torch.zeros_like(offsets, dtype=dtype), torch.zeros_like(offsets, dtype=dtype)
    mean = total / sizes.clamp_min(1).unsqueeze(1).to(total.dtype)
    return mean, bag.to(dtype), sizes.to(dtype), sizes.to(dtype, copy=True)


@kernel_translation("aten::_embedding_bag")
@kernel_translation("aten::_embedding_bag_forward_only")
def embedding_bag_with_kernel(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """The same as a custom node with a kernel.

    _embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0,
    bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> (Tensor,
    Tensor, Tensor, Tensor)
    _embedding_bag_forward_only(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False,
    int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False,
    int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)
    """
    if indices.dtype != offsets.dtype:
        indices, offsets = (op.Cast(x, to=INT64.dtype) for x in (indices, offsets))
    return custom_node(
        "opbridge::EmbeddingBag",
        weight,
        indices,
        offsets,
        per_sample_weights,
        num_outputs=4,
        mode=mode,
        padding_idx=padding_idx,
        include_last_offset=include_last_offset,
    )


@body_for("opbridge::EmbeddingBag")
def body(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None = None,
    *,
    mode: int,
    padding_idx: int,
    include_last_offset: int,
) -> Any:
    """The nodes of the mapping without a kernel."""
    return torch.ops.aten._embedding_bag_forward_only(
        weight, indices, offsets, False, mode, False, per_sample_weights, bool(include_last_offset), padding_idx
    )


@rewrite("torch.nn.functional.embedding_bag")
def bags_of_one_size(
    original: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Bags that are the rows of a matrix of indices: one ``embedding`` and a reduction, without offsets."""
    if input.dim() != 2 or weight.dim() != 2 or offsets is not None or max_norm is not None:
        return NotImplemented
    if mode not in ("sum", "mean", "max") or (per_sample_weights is not None and mode != "sum"):
        return NotImplemented
    size = input.shape[1]
    if mode == "max" and not (isinstance(size, int) and size > 0):
        return NotImplemented
    rows = torch.nn.functional.embedding(input, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(2)
    counts: Any = size
    if padding_idx is not None:
        is_padding = (input == padding_idx % weight.shape[0]).unsqueeze(2)
        rows = torch.where(is_padding, -math.inf if mode == "max" else 0.0, rows)
        counts = (~is_padding).sum(1)
    if mode == "max":
        largest = rows.amax(1)
        return largest if padding_idx is None else torch.where(counts > 0, largest, 0.0)
    total = rows.sum(1)
    if mode == "sum":
        return total
    if isinstance(counts, Tensor):
        return total / counts.clamp_min(1)
    return total / torch.sym_max(counts, 1)


def _nothing(rows: Tensor, starts: Tensor) -> Tensor:
    return rows.new_zeros(starts.shape[0], rows.shape[1])


def _largest(rows: Tensor, indices: Tensor, bag: Tensor, counts: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum of each column of each bag, and the first index that has it."""
    none = _nothing(rows, sizes)
    places = bag.unsqueeze(1).expand_as(rows)
    largest = (none - math.inf).scatter_reduce(0, places, rows, "amax")
    is_largest = counts.unsqueeze(1) & (rows == largest.index_select(0, bag))
    position = torch.arange(rows.shape[0]).unsqueeze(1)
    last = rows.shape[0] - 1
    first = torch.full_like(none, last, dtype=torch.int64)
    first = first.scatter_reduce(0, places, torch.where(is_largest, position, last), "amin")
    some = (sizes > 0).unsqueeze(1)
    which = indices.index_select(0, first.flatten()).reshape(first.shape)
    return torch.where(some, largest, none), torch.where(some, which, 0)
