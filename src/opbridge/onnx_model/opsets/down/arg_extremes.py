"""ArgMax, ArgMin: ``select_last_index`` since opset 12."""

import numpy as np

from opbridge.onnx_model.opsets.dynamic_shapes import size_along
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("ArgMax", "ArgMin", version=12)
def last_by_reversing(site: Site) -> None:
    """The last of equal elements is found as the first along the reversed axis."""
    last = site.attribute("select_last_index")
    site.set(select_last_index=None)
    if not last:
        return
    data, axis, op = site.input(0), site.attribute("axis"), site.op
    assert data is not None
    backwards = op.Slice(data, *(op.constant(np.array([n])) for n in (-1, np.iinfo(np.int64).min + 1, axis, -1)))
    found = site.again(backwards)
    site.replace(op.Sub(op.Sub(size_along(op, data, axis), 1), found))
