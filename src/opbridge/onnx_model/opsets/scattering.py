"""Scattering with a reduction, in operators of opset 11; duplicates are resolved in several iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder

__all__ = ["scatter_rows"]

_REDUCTIONS: dict[str, Callable[[Builder, ir.Value, ir.Value], ir.Value]] = {
    "add": lambda op, x, y: op.Add(x, y),
    "mul": lambda op, x, y: op.Mul(x, y),
    "max": lambda op, x, y: op.Max(x, y),
    "min": lambda op, x, y: op.Min(x, y),
}


def scatter_rows(op: Builder, data: ir.Value, rows: ir.Value, updates: ir.Value, reduction: str) -> ir.Value:
    """``data`` (n, ...) with ``updates`` (m, ...) reduced into the rows selected by ``rows`` (m).

    Each iteration applies one update per row, selected by a table of winners, so that no iteration has duplicates. The
    number of iterations is the largest number of updates of a row.
    """
    column = op.Reshape(rows, op.constant(np.array([-1, 1])))
    some = op.Greater(op.Size(rows), op.constant(np.array(0)))
    size = op.Slice(op.Shape(data), op.constant(np.array([0])), op.constant(np.array([1])))
    longest = op.constant(np.array(np.iinfo(np.int64).max))

    def body(inner: Builder, _: ir.Value, __: ir.Value, now: ir.Value, left: ir.Value, values: ir.Value) -> Any:
        number = inner.Gather(inner.Shape(left), inner.constant(np.array(0)), axis=0)
        tickets = inner.Range(inner.constant(np.array(0)), number, inner.constant(np.array(1)))
        table = inner.ConstantOfShape(size, value=ir.tensor(np.zeros(1, dtype=np.int64)))
        winners = inner.GatherND(inner.ScatterND(table, left, tickets), left)
        won = inner.Equal(winners, tickets)
        places = inner.Compress(left, won, axis=0)
        applied = _REDUCTIONS[reduction](inner, inner.GatherND(now, places), inner.Compress(values, won, axis=0))
        lost = inner.Not(won)
        rest = inner.Compress(left, lost, axis=0)
        more = inner.Greater(inner.Size(rest), inner.constant(np.array(0)))
        return more, inner.ScatterND(now, places, applied), rest, inner.Compress(values, lost, axis=0)

    inputs = [ir.Value(name="round", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(())),
              ir.Value(name="more", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape(())),
              *(ir.Value(name=name, type=value.type, shape=_any_rows(value))
                for name, value in (("now", data), ("left", column), ("values", updates)))]  # fmt: skip
    result, _, _ = op.Loop(longest, some, data, column, updates, outputs=3, body=op.graph("round", body, *inputs))
    result.type, result.shape = data.type, data.shape
    scattered: ir.Value = result
    return scattered


def _any_rows(value: ir.Value) -> ir.Shape | None:
    return None if value.shape is None else ir.Shape([None, *value.shape[1:]])
