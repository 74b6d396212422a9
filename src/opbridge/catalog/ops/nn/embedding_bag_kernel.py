"""Sums, means and maxima over bags of embeddings, as custom nodes with a kernel."""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import INT64
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, kernel_translation
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::EmbeddingBag", "embedding_bag.h")


@kernel_translation("aten::embedding_bag")
@kernel_translation("aten::embedding_bag.padding_idx")
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """``embedding_bag`` as a custom node with a kernel (``kernels="always"``).

    embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0,
    bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False) -> (Tensor, Tensor, Tensor,
    Tensor)
    embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int mode,
    bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor,
    Tensor)
    """
    if padding_idx is not None and padding_idx < 0:
        padding_idx += int(weight.shape[0])
    padding = -1 if padding_idx is None else padding_idx
    return _bags(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding)


@kernel_translation("aten::_embedding_bag")
@kernel_translation("aten::_embedding_bag_forward_only")
def embedding_bag_forward(
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
    """The operator that ``embedding_bag`` calls, as a custom node with a kernel (``kernels="always"``).

    _embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0,
    bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> (Tensor,
    Tensor, Tensor, Tensor)
    _embedding_bag_forward_only(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False,
    int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False,
    int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)
    """
    return _bags(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx)


def _bags(
    weight: Any, indices: Any, offsets: Any, mode: int, factors: Any, include_last_offset: bool, padding_idx: int
) -> Any:
    if indices.dtype != offsets.dtype:
        indices, offsets = (op.Cast(x, to=INT64.dtype) for x in (indices, offsets))
    return custom_node(
        "opbridge::EmbeddingBag",
        weight,
        indices,
        offsets,
        factors,
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
    factors: Tensor | None = None,
    *,
    mode: int,
    padding_idx: int,
    include_last_offset: int,
) -> Any:
    """The nodes of the mapping without a kernel."""
    return torch.ops.aten._embedding_bag_forward_only(
        weight, indices, offsets, False, mode, False, factors, bool(include_last_offset), padding_idx
    )
