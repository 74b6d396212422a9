"""Shape: ``start`` and ``end`` since opset 15."""

import numpy as np

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Shape", version=15)
def sliced(site: Site) -> None:
    """A part of the shape becomes a slice of the whole shape."""
    start, end = site.attribute("start") or 0, site.attribute("end")
    site.set(start=None, end=None)
    if not start and end is None:
        return
    op = site.op
    last = np.iinfo(np.int64).max if end is None else end
    # A negative position before the first axis means the first axis.
    whole = op.Shape(site.input(0))
    site.replace(op.Slice(whole, op.constant(np.array([start])), op.constant(np.array([last]))))
