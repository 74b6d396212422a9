"""ScatterND, ScatterElements: the reductions of opset 16 and 18."""

from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.scattering import scatter_rows
from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import down


@down("ScatterND", "ScatterElements", version=18)
def extremes_in_rounds(site: Site) -> None:
    """A maximum or minimum becomes a loop that resolves one duplicate per iteration."""
    if site.attribute("reduction") in ("max", "min"):
        _in_rounds(site)


@down("ScatterND", "ScatterElements", version=16)
def reductions_in_rounds(site: Site) -> None:
    """A reduction becomes a loop that resolves one duplicate per iteration."""
    if site.attribute("reduction") != "none":
        _in_rounds(site)
    else:
        site.set(reduction=None)


def _in_rounds(site: Site) -> None:
    data, indices, updates = (site.input(position) for position in range(3))
    assert data is not None
    assert indices is not None
    assert updates is not None
    if site.dtype(data) in (ir.DataType.BOOL, ir.DataType.STRING):
        raise CannotExpress(f"a reduction of {site.dtype(data)}")
    if site.node.op_type == "ScatterND":
        site.replace(_scatter_nd(site, data, indices, updates))
    else:
        site.replace(_scatter_elements(site, data, indices, updates))


def _scatter_nd(site: Site, data: ir.Value, indices: ir.Value, updates: ir.Value) -> ir.Value:
    """Scatter into rows: the indexed axes are flattened."""
    op = site.op
    rank = site.rank(data, "neither are the rows that it writes")
    depth = indices.shape[-1] if indices.shape is not None else None
    if not isinstance(depth, int):
        raise CannotExpress("the length of its indices is not known")
    shape = op.Shape(data)
    outer = op.Slice(shape, op.constant(np.array([0])), op.constant(np.array([depth])))
    inner = op.Slice(shape, op.constant(np.array([depth])), op.constant(np.array([rank])))
    every = op.constant(np.array([-1]))
    positive = op.Reshape(_wrapped(op, indices, outer), op.constant(np.array([-1, depth])))
    rows = _linear(op, positive, outer, depth)
    flat = op.Reshape(data, op.Concat(every, inner, axis=0))
    values = op.Reshape(updates, op.Concat(every, inner, axis=0))
    result = scatter_rows(op, flat, rows, values, site.attribute("reduction"))
    done: ir.Value = op.Reshape(result, shape)
    return done


def _scatter_elements(site: Site, data: ir.Value, indices: ir.Value, updates: ir.Value) -> ir.Value:
    """Scatter into the flattened data; the positions are computed from the indices."""
    op = site.op
    rank = site.rank(data, "neither is its axis")
    (axis,) = normalized([site.attribute("axis")], rank)
    shape, every = op.Shape(data), op.constant(np.array([-1]))
    size = op.Gather(shape, op.constant(np.array([axis])), axis=0)
    # NonZero of ones returns the positions of all elements of the indices in order.
    ones = op.ConstantOfShape(op.Shape(indices), value=ir.tensor(np.ones(1, dtype=np.int64)))
    places = op.Transpose(op.NonZero(ones), perm=[1, 0])
    along = op.Reshape(_wrapped(op, indices, size), op.constant(np.array([-1, 1])))
    chosen = op.constant(np.arange(rank).reshape(1, -1) == axis)
    rows = _linear(op, op.Where(chosen, along, places), shape, rank)
    result = scatter_rows(op, op.Reshape(data, every), rows, op.Reshape(updates, every), site.attribute("reduction"))
    done: ir.Value = op.Reshape(result, shape)
    return done


def _wrapped(op: Builder, indices: ir.Value, sizes: ir.Value) -> Any:
    """The indices as nonnegative numbers."""
    wide = op.cast(indices, ir.DataType.INT64)
    return op.Where(op.Less(wide, op.constant(np.array(0))), op.Add(wide, sizes), wide)


def _linear(op: Builder, places: Any, sizes: Any, depth: int) -> Any:
    """The position in the flattened tensor of each row of coordinates."""
    total = None
    for axis in range(depth):
        coordinate = op.Gather(places, op.constant(np.array(axis)), axis=1)
        if total is None:
            total = coordinate
        else:
            total = op.Add(op.Mul(total, op.Gather(sizes, op.constant(np.array(axis)), axis=0)), coordinate)
    return total
