"""Pad: an axes input since opset 18, mode 'wrap' since opset 19."""

from typing import Any

import numpy as np

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import down


@down("Pad", version=19)
def wrapped(site: Site) -> None:
    """The mode 'wrap' becomes a concatenation of slices."""
    if site.attribute("mode") != "wrap":
        return
    data, op = site.input(0), site.op
    rank = site.rank(data, "neither are its axes")
    axes = known(site.input(3))
    pads = site.constant(1, "what is wrapped around")
    places = list(range(rank)) if axes is None else normalized(axes, rank)
    if site.input(3) is not None and axes is None:
        raise CannotExpress("mode='wrap' on axes that are known only at run time")
    value = data
    for position, axis in enumerate(places):
        value = _wrap(site, op, value, axis, int(pads[position]), int(pads[position + len(places)]))
    site.replace(value)


@down("Pad", version=18)
def all_axes(site: Site) -> None:
    """The pads of some axes become pads of all axes."""
    data, pads, value, axes = (site.input(position) for position in range(4))
    if axes is None:
        return
    rank = site.rank(data, "neither are its other axes")
    op = site.op
    chosen, given = known(axes), known(pads)
    if chosen is not None and given is not None:
        whole = np.zeros(2 * rank, dtype=np.int64)
        places = normalized(chosen, rank)
        whole[[*places, *(place + rank for place in places)]] = given
        full = op.constant(whole)
    else:
        first = op.Mod(op.Add(op.Cast(axes, to=7), rank), rank)
        rows = op.Reshape(op.Concat(first, op.Add(first, rank), axis=0), op.constant(np.array([-1, 1])))
        full = op.ScatterND(op.constant(np.zeros(2 * rank, dtype=np.int64)), rows, pads)
    site.set_inputs(data, full, value)


def _wrap(site: Site, op: Builder, value: Any, axis: int, before: int, after: int) -> Any:
    """The value with elements from its opposite ends added before and after it."""
    size = value.shape[axis] if value.shape is not None else None
    for count in (before, after):
        if count > 0 and (not isinstance(size, int) or count > size):
            raise CannotExpress("mode='wrap' by more than the size of an axis")
    ends = np.iinfo(np.int64).max
    along = op.constant(np.array([axis]))

    def part(start: int, end: int) -> Any:
        return op.Slice(value, op.constant(np.array([start])), op.constant(np.array([end])), along)

    parts = [part(-before, ends)] if before > 0 else []
    parts.append(value if min(before, after) >= 0 else part(max(-before, 0), ends if after >= 0 else after))
    parts += [part(0, after)] if after > 0 else []
    return op.Concat(*parts, axis=axis) if len(parts) > 1 else parts[0]
