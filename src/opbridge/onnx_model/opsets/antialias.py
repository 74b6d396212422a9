"""Resize with antialias, as one matrix product per axis with constant weights."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site

__all__ = ["resize_axes"]


def resize_axes(site: Site, places: list[int], scales: np.ndarray | None, sizes: np.ndarray | None) -> ir.Value:
    """Resize axis by axis, and return the node's result.

    Raises:
        CannotExpress: A size is known only at run time.
    """
    data, op = site.input(0), site.op
    assert data is not None
    assert data.shape is not None
    dtype, value = site.dtype(data), data
    rank = len(data.shape)
    for position, place in enumerate(places):
        length = data.shape[place]
        given = (scales is not None and scales.size) or (sizes is not None and sizes.size)
        if not isinstance(length, int) or not given:
            raise CannotExpress("antialias with sizes that are known only at run time")
        if sizes is not None and sizes.size:
            size = int(sizes[position])
            scale = size / length
        else:
            assert scales is not None
            scale = float(scales[position])
            size = math.floor(length * scale)
        if size == length and scale == 1:
            continue
        weights = _weights(site, length, size, scale)
        order = [*(axis for axis in range(rank) if axis != place), place]
        turned = op.MatMul(op.Transpose(value, perm=order), op.like(weights.T, value))
        value = op.Transpose(turned, perm=[order.index(axis) for axis in range(rank)])
    result: ir.Value = op.cast(value, dtype) if value is not data else op.Identity(data)
    return result


def _weights(site: Site, length: int, size: int, scale: float) -> np.ndarray:
    """The weights of the input elements for each output element, one row per output element.

    The filter is stretched by 1 / scale if the axis shrinks, as ONNX defines ``antialias``.
    """
    narrow = min(scale, 1.0)
    reach = (1 if site.attribute("mode") == "linear" else 2) / narrow
    matrix = np.zeros((size, length))
    for row in range(size):
        place = _origin(site, row, length, size, scale)
        for column in range(math.floor(place - reach), math.ceil(place + reach) + 1):
            weight = _kernel(site, (column - place) * narrow)
            if 0 <= column < length:
                matrix[row, column] += weight
            elif not site.attribute("exclude_outside"):
                # The edge element replaces elements outside.
                matrix[row, min(max(column, 0), length - 1)] += weight
    return matrix / matrix.sum(axis=1, keepdims=True)


def _kernel(site: Site, distance: float) -> float:
    away = abs(distance)
    if site.attribute("mode") == "linear":
        return max(0.0, 1 - away)
    a = float(site.attribute("cubic_coeff_a"))
    if away <= 1:
        return (a + 2) * away**3 - (a + 3) * away**2 + 1
    return a * away**3 - 5 * a * away**2 + 8 * a * away - 4 * a if away < 2 else 0.0


def _origin(site: Site, place: int, length: int, size: int, scale: float) -> float:
    """The position of an output element in the input."""
    match site.attribute("coordinate_transformation_mode"):
        case "half_pixel":
            return (place + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (place + 0.5) / scale - 0.5 if size > 1 else 0.0
        case "align_corners":
            return place * (length - 1) / (size - 1) if size > 1 else 0.0
        case "asymmetric":
            return place / scale
        case mode:
            raise CannotExpress(f"antialias with coordinate_transformation_mode={mode!r}")
