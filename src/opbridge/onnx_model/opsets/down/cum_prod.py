"""CumProd: new in opset 26."""

from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("CumProd", version=26)
def scanned(site: Site) -> None:
    """The node becomes a Scan that multiplies."""
    data, op = site.input(0), site.op
    rank = site.rank(data, "neither is its axis")
    assert data is not None
    shape = op.Shape(data)
    size, first, one = (op.constant(np.array([n])) for n in (rank, 0, 1))
    axis = op.Reshape(op.cast(site.input(1), ir.DataType.INT64), one)
    axis = op.Mod(op.Add(axis, size), size)

    def product(start: Any, end: Any) -> Any:
        sizes = op.Concat(one, op.Slice(shape, start, end), axis=0)
        return op.make("ReduceProd", sizes, keepdims=1)

    after = op.Add(axis, one)
    middle = op.Slice(shape, axis, after)
    before, behind = product(first, axis), product(after, size)
    cube = op.Reshape(data, op.Concat(before, middle, behind, axis=0))
    start = op.Expand(op.like(1, data), op.Concat(before, behind, axis=0))
    site.replace(op.Reshape(_scan(site, start, cube), shape))


def _scan(site: Site, start: Any, cube: Any) -> Any:
    op = site.op
    exclusive, backwards = bool(site.attribute("exclusive")), int(bool(site.attribute("reverse")))

    def body(inner: Builder, product: Any, element: Any) -> Any:
        following = inner.Mul(product, element)
        return following, inner.Identity(product if exclusive else following)

    row = ir.Shape([None, None])
    inputs = [ir.Value(name=name, type=cube.type, shape=row) for name in ("product", "element")]
    _, result = op.Scan(
        start,
        cube,
        outputs=2,
        body=op.graph("product", body, *inputs),
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
        scan_input_directions=[backwards],
        scan_output_directions=[backwards],
    )
    return result
