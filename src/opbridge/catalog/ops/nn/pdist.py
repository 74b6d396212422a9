"""Distances between the rows of one matrix, as an ONNX Scan, or as a custom node with a kernel."""

from __future__ import annotations

import math
from typing import Any, TypeVar, Union

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import DOUBLE, FLOAT, INT64, graph, script
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, kernel_translation, translation
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::PDist", "distances.h")

Real = TypeVar("Real", bound=Union[FLOAT, DOUBLE])  # noqa: UP007 - onnxscript reads typing.Union


@script()
def _unequal(x: Real, twice: Real, rows: INT64[...], lags: INT64[...]) -> Real:  # type: ignore[valid-type]
    """The number of elements that differ from the row ``lag`` rows ahead."""

    @graph()
    def step(lag):  # type: ignore[no-untyped-def]
        difference = x - op.Slice(twice, lag, lag + rows)
        is_none = op.Equal(difference, op.CastLike(0, difference))
        ones = op.CastLike(op.Not(is_none), difference)
        return op.ReduceSum(op.Where(op.IsNaN(difference), difference, ones), [1], keepdims=0)

    return op.Scan(lags, body=step, num_scan_inputs=1)


@script()
def _sizes(x: Real, twice: Real, rows: INT64[...], lags: INT64[...]) -> Real:  # type: ignore[valid-type]
    """The sums of absolute differences."""

    @graph()
    def step(lag):  # type: ignore[no-untyped-def]
        return op.ReduceSum(op.Abs(x - op.Slice(twice, lag, lag + rows)), [1], keepdims=0)

    return op.Scan(lags, body=step, num_scan_inputs=1)


@script()
def _squares(x: Real, twice: Real, rows: INT64[...], lags: INT64[...]) -> Real:  # type: ignore[valid-type]
    """The sums of squared differences."""

    @graph()
    def step(lag):  # type: ignore[no-untyped-def]
        return op.ReduceSumSquare(x - op.Slice(twice, lag, lag + rows), [1], keepdims=0)

    return op.Scan(lags, body=step, num_scan_inputs=1)


@script()
def _powers(x: Real, twice: Real, rows: INT64[...], lags: INT64[...], p: Real) -> Real:  # type: ignore[valid-type]
    """The sums of powers of absolute differences."""

    @graph()
    def step(lag):  # type: ignore[no-untyped-def]
        return op.ReduceSum(op.Pow(op.Abs(x - op.Slice(twice, lag, lag + rows)), p), [1], keepdims=0)

    return op.Scan(lags, body=step, num_scan_inputs=1)


@script()
def _largest(x: Real, twice: Real, rows: INT64[...], lags: INT64[...]) -> Real:  # type: ignore[valid-type]
    """The largest absolute differences; NaN propagates, which engines do not guarantee for their maximum."""

    @graph()
    def step(lag):  # type: ignore[no-untyped-def]
        difference = x - op.Slice(twice, lag, lag + rows)
        is_nan = op.IsNaN(difference)
        none = op.CastLike(0, difference)
        largest = op.ReduceMax(op.Where(is_nan, none, op.Abs(difference)), [1], keepdims=0)
        spoilt = op.ReduceSum(op.Where(is_nan, difference, none), [1], keepdims=0)
        return largest + spoilt

    return op.Scan(lags, body=step, num_scan_inputs=1)


@translation("aten::_pdist_forward")
def pdist_forward(self: Any, p: float = 2.0) -> Any:
    """The p-norm of the difference of every pair of rows of (N, M), as (N (N - 1) / 2).

    _pdist_forward(Tensor self, float p=2.) -> Tensor

    One step takes the difference of every row and the row ``lag`` rows ahead, with wraparound. N / 2 steps cover every
    pair, and each step holds N M numbers.
    """
    rows = op.Shape(self, start=0, end=1)
    zero, one, two = (op.Constant(value_ints=[value]) for value in (0, 1, 2))
    half = op.Max(op.Div(rows, two), one)
    lags = op.Unsqueeze(_range(one, op.Add(half, one)), one)
    if math.isinf(p):
        # ONNX has no maximum over zero elements; a column of zeros does not change the result.
        self = op.Concat(self, op.Expand(op.CastLike(zero, self), op.Concat(rows, one, axis=0)), axis=1)
    distances = _distances(self, rows, lags, p)
    first = op.Unsqueeze(_range(zero, rows), one)
    second = op.Unsqueeze(_range(zero, rows), zero)
    lag = op.Sub(second, first)
    ahead = op.Add(op.Mul(op.Sub(lag, one), rows), first)
    behind = op.Add(op.Mul(op.Sub(op.Sub(rows, lag), one), rows), second)
    flat = op.Constant(value_ints=[-1])
    places = op.Reshape(op.Where(op.LessOrEqual(lag, half), ahead, behind), flat)
    is_pair = op.Reshape(op.Less(first, second), flat)
    return op.Gather(op.Reshape(distances, flat), op.Compress(places, is_pair))


def _range(start: Any, end: Any) -> Any:
    return op.Range(op.Squeeze(start), op.Squeeze(end), op.Constant(value_int=1))


def _distances(x: Any, rows: Any, lags: Any, p: float) -> Any:
    """The distances, one row per lag."""
    given = (x, op.Concat(x, x, axis=0), rows, lags)
    if p == 0:
        return _unequal(*given)
    if p == 1:
        return _sizes(*given)
    if p == 2:
        return op.Sqrt(_squares(*given))
    if math.isinf(p):
        return _largest(*given)
    power, root = (op.CastLike(op.Constant(value=ir.tensor(np.asarray(number))), x) for number in (float(p), 1 / p))
    return op.Pow(_powers(*given, power), root)


@kernel_translation("aten::_pdist_forward")
def pdist_with_kernel(self: Any, p: float = 2.0) -> Any:
    """``_pdist_forward`` as a custom node with a kernel, for norms without powers.

    _pdist_forward(Tensor self, float p=2.) -> Tensor
    """
    if p not in (0, 1, 2, math.inf):
        return pdist_forward(self, p)
    return custom_node("opbridge::PDist", self, p=float(p))


@body_for("opbridge::PDist")
def body(x: Tensor, p: float) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return torch.ops.aten._pdist_forward(x, p)  # type: ignore[no-any-return]
