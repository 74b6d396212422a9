"""MelWeightMatrix: new in opset 17."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("MelWeightMatrix", version=17)
def constant(site: Site) -> None:
    """The node becomes a constant matrix."""
    given = [known(site.input(position)) for position in range(5)]
    if any(value is None for value in given):
        raise CannotExpress("its sizes and frequencies are known only at run time")
    bands, length, rate, low, high = (value.item() for value in given if value is not None)
    dtype = ir.DataType(site.attribute("output_datatype"))
    site.replace(site.op.constant(_matrix(int(bands), int(length), rate, low, high).astype(dtype.numpy()), dtype))


def _matrix(bands: int, length: int, rate: float, low: float, high: float) -> np.ndarray:
    """Triangular filters of height 1 that are evenly spaced in mel(f) = 2595 log10(1 + f / 700)."""
    first, last = (2595 * math.log10(1 + frequency / 700) for frequency in (low, high))
    step = (last - first) / (bands + 2)
    mels = np.arange(bands + 2) * step + first
    bins = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(int)
    matrix = np.zeros((length // 2 + 1, bands))
    for band in range(bands):
        start, centre, end = bins[band : band + 3]
        rising = centre - start
        if rising == 0:
            matrix[centre, band] = 1
        else:
            for row in range(start, centre + 1):
                matrix[row, band] = (row - start) / rising
        for row in range(centre, end):
            matrix[row, band] = (end - row) / (end - centre)
    return matrix
