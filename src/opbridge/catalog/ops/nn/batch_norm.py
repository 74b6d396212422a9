"""Batch normalization with the statistics of the batch, as in training, and of data-dependent sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, rewrite, translation
from opbridge.torch_graph.internals import symbols_of

_WHY = "torch's mapping uses the running statistics in training too"


def _on_channels(value: Tensor, rank: int) -> Tensor:
    return value.reshape([-1] + [1] * (rank - 2))


def _statistics_type(x: Tensor, *parameters: Tensor | None) -> torch.dtype:
    return next((parameter.dtype for parameter in parameters if parameter is not None), x.dtype)


def _normalized(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, inverse: Tensor, dtype: torch.dtype
) -> Tensor:
    scale = inverse if weight is None else inverse * weight
    result = (x - _on_channels(mean, x.dim())) * _on_channels(scale, x.dim())
    return (result if bias is None else result + _on_channels(bias, x.dim())).to(dtype)


def _by_batch(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The result, and per channel the mean, 1 / sqrt(variance + eps), and the sum of squared deviations."""
    axes = [axis for axis in range(x.dim()) if axis != 1]
    mean = x.mean(axes)
    offset = x - _on_channels(mean, x.dim())
    squares = (offset * offset).sum(axes)
    inverse = torch.rsqrt(squares / (x.numel() // x.shape[1]) + eps)
    return _normalized(x, weight, bias, mean, inverse, dtype), mean, inverse, squares


@decomposition("aten::_native_batch_norm_legit_functional", overrides=_WHY)
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + eps), scaled and shifted per channel; the statistics and updated running statistics.

    _native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean,
    Tensor running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor,
    Tensor running_mean_out, Tensor running_var_out)

    The variance of the batch is biased, the running variance is unbiased.
    """
    statistics = _statistics_type(input, weight, running_mean)
    x = input.float() if input.dtype.itemsize < 4 else input
    if not training:
        none = input.new_zeros(0, dtype=statistics)
        inverse = torch.rsqrt(running_var.to(x.dtype) + eps)
        result = _normalized(x, weight, bias, running_mean.to(x.dtype), inverse, input.dtype)
        return result, none, none.clone(), running_mean.clone(), running_var.clone()
    result, mean, inverse, squares = _by_batch(x, weight, bias, eps, input.dtype)
    variance = squares / (x.numel() // x.shape[1] - 1)
    updated = [
        (momentum * new + (1 - momentum) * old).to(old.dtype)
        for new, old in ((mean, running_mean), (variance, running_var))
    ]
    return result, mean.to(statistics), inverse.to(statistics), updated[0], updated[1]


@decomposition("aten::_native_batch_norm_legit.no_stats", overrides=_WHY)
def native_batch_norm_alone(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalization without running statistics.

    _native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum,
    float eps) -> (Tensor, Tensor, Tensor)
    """
    statistics = _statistics_type(input, weight)
    x = input.float() if input.dtype.itemsize < 4 else input
    result, mean, inverse, _ = _by_batch(x, weight, bias, eps, input.dtype)
    return result, mean.to(statistics), inverse.to(statistics)


@translation(
    "aten::_native_batch_norm_legit_no_training",
    overrides="torch's mapping returns two filled tensors where PyTorch returns empty tensors",
)
def native_batch_norm_no_training(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    """Batch normalization with the running statistics, as ONNX BatchNormalization, and two empty tensors.

    _native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean,
    Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)
    """

    def filled(value: float) -> Any:
        return op.Expand(op.CastLike(op.Constant(value_float=value), running_mean), op.Shape(running_mean))

    scale = filled(1.0) if weight is None else weight
    shift = filled(0.0) if bias is None else bias
    result = op.BatchNormalization(input, scale, shift, running_mean, running_var, epsilon=eps)
    none = op.CastLike(op.Constant(value_floats=[]), running_mean)
    return result, none, op.Identity(none)


@rewrite("torch.nn.functional.batch_norm")
def batch_norm_of_data_dependent_sizes(
    original: Callable[..., Tensor],
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Batch normalization with the running statistics, of a number of rows that is not known during the capture.

    torch's function asks whether there are any.
    """
    if training or not symbols_of([input]):
        return NotImplemented
    call = torch.ops.aten._native_batch_norm_legit_no_training.default
    return call(input, weight, bias, running_mean, running_var, momentum, eps)[0]
