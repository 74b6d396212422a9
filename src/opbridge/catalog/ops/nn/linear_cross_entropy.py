"""The cross entropy of a linear layer's output, which torch computes in chunks to save memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes


def _loss(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    acc_dtype: torch.dtype,
) -> Tensor:
    logits = torch.nn.functional.linear(
        input.to(acc_dtype),
        linear_weight.to(acc_dtype),
        None if linear_bias is None else linear_bias.to(acc_dtype),
    )
    classes = target.to(acc_dtype) if target.is_floating_point() else target
    scale = None if weight is None else weight.to(acc_dtype)
    loss = torch.nn.functional.cross_entropy(
        logits,
        classes,
        scale,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    return loss.to(input.dtype)


@decomposition("torch_nn::_linear_cross_entropy_batch_chunked")
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    compute_input_grad: bool,
    compute_linear_weight_grad: bool,
    compute_linear_bias_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The scalar loss of ``input`` (N, F) with the layer's weights (C, F); the gradients are empty.

    _linear_cross_entropy_batch_chunked(Tensor input, Tensor linear_weight, Tensor target, Tensor? linear_bias,
    Tensor? weight, str reduction, SymInt ignore_index, float label_smoothing, SymInt batch_chunk_size,
    str acc_policy, ScalarType acc_dtype, bool allow_retain_graph, bool compute_input_grad,
    bool compute_linear_weight_grad, bool compute_linear_bias_grad) -> (Tensor, Tensor, Tensor, Tensor)

    An exported model does not compute gradients, and nothing else reads them.
    """
    loss = _loss(input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing, acc_dtype)
    return loss, input.new_zeros(0, 0), input.new_zeros(0, 0), input.new_zeros(0)


@decomposition("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropy_by_sample(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Tensor:
    """The loss of every row of ``input``.

    _linear_cross_entropy_batch_chunked_no_reduction(Tensor input, Tensor linear_weight, Tensor target,
    Tensor? linear_bias, Tensor? weight, SymInt ignore_index, SymInt batch_chunk_size, str acc_policy,
    ScalarType acc_dtype) -> Tensor
    """
    return _loss(input, linear_weight, target, linear_bias, weight, "none", ignore_index, 0.0, acc_dtype)


@rewrite("torch.nn.functional.linear_cross_entropy")
def linear_cross_entropy_of_dynamic_sizes(
    original: Callable[..., Tensor],
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    options: Any = None,
    **arguments: Any,
) -> Any:
    """The loss without chunks, in the dtype of the chunks: torch cannot choose a chunk size for dynamic sizes."""
    tensors = (input, linear_weight, target)
    is_fixed = have_fixed_sizes(*tensors)
    if options is None or is_fixed or linear_weight.dim() != 2:
        return NotImplemented
    dtype = options.acc_dtype or input.dtype
    if options.acc_dtype is None and options.acc_policy == "auto" and dtype.itemsize < 4:
        dtype = torch.float32
    given = {name: _as(value, dtype) for name, value in arguments.items()}
    return original(input.to(dtype), linear_weight.to(dtype), _as(target, dtype), **given).to(input.dtype)


def _as(value: Any, dtype: torch.dtype) -> Any:
    """A floating-point tensor converted to ``dtype``; any other value unchanged."""
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
