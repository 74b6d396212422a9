"""A sweep of Francis's QR steps as two ONNX Scans, over the rows and over the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, Union

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import BOOL, DOUBLE, FLOAT, INT64, graph, script
from onnxscript import opset18 as op

import opbridge.catalog.formulas.francis  # noqa: F401 - defines the operator
from opbridge.catalog.declare.spec import Sample, translation

Real = TypeVar("Real", bound=Union[FLOAT, DOUBLE])  # noqa: UP007 - onnxscript reads typing.Union
_END = 2**62


@script()
def _by_rows(
    window: Real,  # type: ignore[valid-type]
    rows: Real,  # type: ignore[valid-type]
    first: Real,  # type: ignore[valid-type]
    twice: Real,  # type: ignore[valid-type]
    places: INT64[...],
    pads: INT64[...],
    head: Real,  # type: ignore[valid-type]
    tiny: Real,  # type: ignore[valid-type]
    infinity: Real,  # type: ignore[valid-type]
) -> tuple[Real, Real, Real, Real]:  # type: ignore[valid-type]
    """Reflect the rows k to k + 2, and the columns k to k + 2 in these rows and the next one.

    Returns:
        The last three rows, the rows before them, and for each reflection I - g uᵀ the row uᵀ and the column g.
    """
    zero = head - head
    half = op.CastLike(0.5, head)
    minus_head = op.Neg(head)

    @graph()
    def step(window, row, first, twice, place, pads):  # type: ignore[no-untyped-def]
        x = op.Gather(window, place - 1, axis=2) + first
        scale = op.ReduceMax(op.Abs(x), [1])
        x = x / op.Where(scale < tiny, infinity, scale)
        u = x + op.Where(x < zero, minus_head, head) * op.ReduceL2(x, [1])
        g = u * (twice / op.Max(op.ReduceSumSquare(u, [1]), half))
        flat = op.Transpose(u, perm=[0, 2, 1])
        four = op.Concat(window - g * op.MatMul(flat, window), row, axis=1)
        part = op.MatMul(op.Slice(four, place, place + 3, [2]), g)
        finished, following = op.Split(four - part * op.Pad(flat, pads), [1, 3], axis=1)
        return following, finished, flat, g

    last, finished, flat, g = op.Scan(window, rows, first, twice, places, pads, body=step, num_scan_inputs=5)
    return last, finished, flat, g


@script()
def _by_columns(
    window: Real,  # type: ignore[valid-type]
    columns: Real,  # type: ignore[valid-type]
    flat: Real,  # type: ignore[valid-type]
    g: Real,  # type: ignore[valid-type]
    places: INT64[...],
    heights: INT64[...],
) -> tuple[Real, Real]:  # type: ignore[valid-type]
    """Reflect the columns k to k + 2 in the rows above row k.

    Returns:
        The last two columns, and the columns before them.
    """
    zero = op.CastLike(0.0, window)

    @graph()
    def step(window, column, flat, g, place):  # type: ignore[no-untyped-def]
        three = op.Concat(window, column, axis=1)
        part = op.Where(heights < place, op.MatMul(flat, three), zero)
        finished, following = op.Split(three - g * part, [1, 2], axis=1)
        return following, finished

    last, finished = op.Scan(window, columns, flat, g, places, body=step, num_scan_inputs=4)
    return last, finished


def _samples() -> Sequence[Sample]:
    """Samples with one block of all rows, with two blocks and unchanged rows, and with a single row."""
    generator = torch.Generator().manual_seed(0)
    first, is_active = torch.zeros(3, 7, 3), torch.zeros(3, 7, dtype=torch.bool)
    h = torch.randn(3, 7, 7, generator=generator).triu(-1)
    for matrix, begin, last in ((0, 0, 6), (1, 1, 3), (1, 4, 6)):
        first[matrix, begin] = torch.randn(3, generator=generator)
        is_active[matrix, begin:last] = True
        h[matrix, begin, :begin] = 0
    one = torch.ones(1, 1, 1)
    return [
        Sample((h, torch.randn(3, 7, 7, generator=generator), first, is_active), name="matrices at different stages"),
        Sample((one, one.clone(), torch.zeros(1, 1, 3), torch.zeros(1, 1, dtype=torch.bool)), name="a single row"),
    ]


@translation("opbridge::francis_sweep", samples=_samples)
def francis_sweep(h: Any, q: Any, first: Any, is_active: Any) -> Any:
    """H and Q after the reflections of all groups of three rows, with O(n) operations each.

    francis_sweep(Tensor h, Tensor q, Tensor first, Tensor is_active) -> (Tensor, Tensor)

    A Scan over the rows computes the reflections; its state of four rows determines the next one. The rows above are
    updated by a Scan over the columns of H and Q. Rows before the first reflection of all matrices and after the last
    one are in neither Scan.
    """
    size, zero, one, two, three = op.Shape(h, start=2), *map(_ints, (0, 1, 2, 3))
    numbers = op.Range(op.Squeeze(zero), op.Squeeze(size), op.Squeeze(one))
    begin, end = _swept(is_active, numbers, size)
    places = op.Unsqueeze(_part(numbers, begin, end), one)
    type_ = h.dtype.numpy()
    head, infinity = _constant(np.array([[[1], [0], [0]]], type_)), _constant(np.array(np.inf, type_))
    tiny = _constant(np.finfo(type_).tiny)
    firsts = op.Unsqueeze(_part(op.Transpose(first, perm=[1, 0, 2]), begin, end), three)
    twice = op.Mul(op.CastLike(is_active, h), _constant(np.array(2, type_)))
    twice = op.Unsqueeze(_part(op.Transpose(twice, perm=[1, 0]), begin, end), _ints(2, 3))
    none = op.Mul(places, _ints(0, 0))
    pads = op.Concat(none, places, none, op.Sub(size, places), axis=1)

    rows = op.Unsqueeze(op.Transpose(op.Pad(h, _ints(0, 0, 0, 0, 3, 3)), perm=[1, 0, 2]), two)
    after, window_end = op.Add(end, three), op.Add(begin, three)
    window, coming = _window(rows, begin, window_end), _part(rows, window_end, after)
    last, finished, flat, g = _by_rows(window, coming, firsts, twice, places, pads, head, tiny, infinity)
    rows = op.Concat(_part(rows, zero, begin), finished, _opened(last), _part(rows, after, _ints(_END)), axis=0)

    columns = op.Concat(op.Transpose(_part(rows, zero, size), perm=[3, 1, 2, 0]), _columns(q), axis=3)
    heights = op.Concat(numbers, op.Expand(_ints(-1), size), axis=0)
    after, window_end = op.Add(end, two), op.Add(begin, two)
    window = _window(columns, begin, window_end)
    last, finished = _by_columns(window, _part(columns, window_end, after), flat, g, places, heights)
    columns = op.Concat(_part(columns, zero, begin), finished, _opened(last), _part(columns, after, size), axis=0)
    both = op.Transpose(op.Squeeze(_part(columns, zero, size), two), perm=[1, 2, 0])
    return op.Trilu(_part(both, zero, size, 1), _constant(np.array(-1))), _part(both, size, _ints(_END), 1)


def _swept(is_active: Any, numbers: Any, size: Any) -> tuple[Any, Any]:
    """The range of rows with reflections in any matrix; at least one row, because a Scan needs a nonempty sequence."""
    is_swept = op.Cast(op.ReduceMax(op.Cast(is_active, to=INT64.dtype), _ints(0), keepdims=0), to=BOOL.dtype)
    end = op.ReduceMax(op.Where(is_swept, op.Add(numbers, _ints(1)), _ints(1)))
    begin = op.ReduceMin(op.Where(is_swept, numbers, op.Sub(end, _ints(1))))
    return op.Reshape(begin, _ints(1)), op.Reshape(end, _ints(1))


def _columns(a: Any) -> Any:
    """The columns of the matrices, followed by three columns of zeros: (columns, batch, 1, rows)."""
    return op.Unsqueeze(op.Transpose(op.Pad(a, _ints(0, 0, 0, 0, 0, 3)), perm=[2, 0, 1]), _ints(2))


def _window(rows: Any, begin: Any, end: Any) -> Any:
    return op.Transpose(op.Squeeze(_part(rows, begin, end), _ints(2)), perm=[1, 0, 2])


def _opened(window: Any) -> Any:
    return op.Unsqueeze(op.Transpose(window, perm=[1, 0, 2]), _ints(2))


def _part(a: Any, begin: Any, end: Any, axis: int = 0) -> Any:
    return op.Slice(a, begin, end, _ints(axis))


def _ints(*values: int) -> Any:
    return op.Constant(value_ints=list(values))


def _constant(array: Any) -> Any:
    return op.Constant(value=ir.tensor(np.asarray(array)))
