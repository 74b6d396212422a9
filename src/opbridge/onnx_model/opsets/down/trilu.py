"""Trilu: new in opset 14."""

from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Trilu", version=14)
def masked(site: Site) -> None:
    """The node becomes a Where between the matrix and zero, by row and column."""
    data, k, op = site.input(0), site.input(1), site.op
    shape = op.Shape(data)

    def numbers(axis: int, column: list[int]) -> Any:
        size = op.Gather(shape, op.constant(np.array(axis)), axis=0)
        counted = op.Range(op.constant(np.array(0)), size, op.constant(np.array(1)))
        return op.Reshape(counted, op.constant(np.array(column)))

    distance = op.Sub(numbers(-1, [1, -1]), numbers(-2, [-1, 1]))
    if k is not None:
        distance = op.Sub(distance, k)
    zero = op.constant(np.array(0, dtype=np.int64))
    outside = op.Less(distance, zero) if site.attribute("upper") else op.Greater(distance, zero)
    if site.dtype(data) is ir.DataType.BOOL:
        site.replace(op.And(data, op.Not(outside)))
    else:
        site.replace(op.Where(outside, op.like(0, data), data))
