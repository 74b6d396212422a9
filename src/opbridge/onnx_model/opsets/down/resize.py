"""Resize: the attributes of opsets 18 and 19, and the inputs that opset 11 requires."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.antialias import resize_axes
from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import down


@down("Resize", version=19)
def symmetric_mode(site: Site) -> None:
    """The symmetric mode becomes the ordinary mode, which is equivalent if the size of the result is exact."""
    if site.attribute("coordinate_transformation_mode") != "half_pixel_symmetric":
        return
    data, scales = site.input(0), known(site.input(2))
    shape = None if data is None or data.shape is None else list(data.shape)
    if site.input(3) is None:
        axes = site.attribute("axes") or list(range(len(shape or [])))
        if scales is None or shape is None:
            raise CannotExpress("half_pixel_symmetric with scales or sizes that are known only at run time")
        for axis, scale in zip(axes, scales, strict=True):
            if scale != 1 and not (isinstance(shape[axis], int) and float(shape[axis] * scale).is_integer()):
                raise CannotExpress("half_pixel_symmetric with a scale that leaves a part of an element")
    site.set(coordinate_transformation_mode="half_pixel")


@down("Resize", version=18)
def all_axes(site: Site) -> None:
    """The scales or sizes of some axes become those of all axes; with antialias the node becomes matrix products."""
    data, roi, scales, sizes = (site.input(position) for position in range(4))
    policy, axes, op = site.attribute("keep_aspect_ratio_policy"), site.attribute("axes"), site.op
    rank = site.rank(data, "neither are its axes")
    places = list(range(rank)) if axes is None else normalized(axes, rank)
    if policy != "stretch" and sizes is not None:
        scales, sizes = _kept_ratio(site, policy, places), None
    if site.attribute("antialias") and not _is_plain(site):
        site.replace(resize_axes(site, places, known(scales), known(sizes)))
        return
    if places != list(range(rank)):
        if scales is not None:
            scales = _scattered(site, scales, places, np.ones(rank, dtype=np.float32))
        if sizes is not None:
            rows = op.constant(np.array(places).reshape(-1, 1))
            sizes = op.ScatterND(op.Shape(data), rows, op.cast(sizes, ir.DataType.INT64))
        if roi is not None and site.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
            whole = np.concatenate([np.zeros(rank), np.ones(rank)]).astype(site.dtype(roi).numpy())
            roi = _scattered(site, roi, [*places, *(place + rank for place in places)], whole)
    site.set_inputs(data, roi, scales, sizes)
    site.set(antialias=None, axes=None, keep_aspect_ratio_policy=None)


@down("Resize", version=13)
def inputs_given(site: Site) -> None:
    """Absent inputs become empty tensors."""
    data, roi, scales, sizes = (site.input(position) for position in range(4))
    op, empty = site.op, np.zeros(0, dtype=np.float32)
    site.set_inputs(data, roi or op.constant(empty), scales or op.constant(empty), sizes)


def _scattered(site: Site, values: ir.Value, places: list[int], whole: np.ndarray) -> ir.Value:
    """The values of the given axes combined with the defaults of the other axes."""
    op = site.op
    constant = known(values)
    if constant is not None:
        whole[places] = constant
        return op.constant(whole)
    result: ir.Value = op.ScatterND(op.constant(whole), op.constant(np.array(places).reshape(-1, 1)), values)
    return result


def _kept_ratio(site: Site, policy: str, places: list[int]) -> ir.Value:
    """The common scale of all axes, if it results in the rounded sizes of opset 18."""
    data, sizes = site.input(0), known(site.input(3))
    shape = [] if data is None or data.shape is None else [data.shape[place] for place in places]
    lengths = [size for size in shape if isinstance(size, int)]
    if sizes is None or len(lengths) != len(places):
        raise CannotExpress(f"keep_aspect_ratio_policy={policy!r} with sizes that are known only at run time")
    ratios = [size / length for size, length in zip(sizes.tolist(), lengths, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    single = np.float32(scale)
    for length in lengths:
        if math.floor(np.float32(length) * single) != math.floor(length * scale + 0.5):
            raise CannotExpress(f"keep_aspect_ratio_policy={policy!r} rounds to a size that no scale gives")
    return site.op.constant(np.full(len(places), single))


def _is_plain(site: Site) -> bool:
    """Whether antialias has no effect because nothing is interpolated or nothing shrinks."""
    if site.attribute("mode") == "nearest":
        return True
    scales, output, data = known(site.input(2)), site.node.outputs[0], site.input(0)
    if scales is not None and scales.size:
        return bool((scales >= 1).all())
    if data is None or data.shape is None or output.shape is None:
        return False
    pairs = zip(data.shape, output.shape, strict=True)
    return all(isinstance(a, int) and isinstance(b, int) and b >= a for a, b in pairs)
