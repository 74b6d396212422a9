"""STFT: new in opset 17."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.fourier import transform
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("STFT", version=17)
def frames(site: Site) -> None:
    """The frames are gathered, weighted, and multiplied by matrices of cosines and sines."""
    signal, step, window, length = (site.input(position) for position in range(4))
    op, one = site.op, site.op.constant(np.array([1]))
    rank = site.rank(signal, "neither is whether it is real")
    assert signal is not None
    assert signal.shape is not None
    parts = signal.shape[2] if rank == 3 else 1
    if parts not in (1, 2):
        raise CannotExpress("whether its signal is real or complex is not known")
    size = op.Gather(op.Shape(signal), op.constant(np.array([1])), axis=0)
    if length is not None:
        number = op.Reshape(op.cast(length, ir.DataType.INT64), one)
    else:
        number = op.Shape(window) if window is not None else size
    hop = op.Reshape(op.cast(step, ir.DataType.INT64), one)
    count = op.Add(op.Div(op.Sub(size, number), hop), one)
    places = op.Add(op.Mul(_numbers(op, count, [-1, 1]), hop), _numbers(op, number, [1, -1]))
    values = []
    for part in range(parts):
        plane = op.Gather(signal, op.constant(np.array(part)), axis=2) if rank == 3 else signal
        framed = op.Gather(plane, places, axis=1)
        values.append(framed if window is None else op.Mul(framed, window))
    both = transform(op, values[0], values[1] if parts == 2 else None, None, onesided=bool(site.attribute("onesided")))
    site.replace(op.Transpose(both, perm=[1, 2, 3, 0]))


def _numbers(op: Builder, count: Any, shape: list[int]) -> Any:
    end = op.Gather(count, op.constant(np.array(0)), axis=0)
    return op.Reshape(op.Range(op.constant(np.array(0)), end, op.constant(np.array(1))), op.constant(np.array(shape)))
