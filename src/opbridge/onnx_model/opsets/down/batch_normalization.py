"""BatchNormalization: a training mode since opset 14, separate types for statistics since 14 and 15."""

from typing import Any

import numpy as np

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("BatchNormalization", version=15)
def same_scale_type(site: Site) -> None:
    """Everything is computed in the widest type of the inputs."""
    _one_type(site, (0, 1, 2))


@down("BatchNormalization", version=14)
def inference(site: Site) -> None:
    """A training step becomes means; otherwise everything is computed in the widest type of the inputs."""
    training = site.attribute("training_mode")
    if training:
        _train(site)
        return
    site.set(training_mode=None)
    _one_type(site, (0, 1, 2, 3, 4))


def _one_type(site: Site, positions: tuple[int, ...]) -> None:
    given = [value for position in positions if (value := site.input(position)) is not None]
    dtypes = {value.dtype for value in given}
    if len(dtypes) > 1:
        widest = max((site.dtype(value) for value in given), key=lambda dtype: dtype.bitwidth)
        inputs = [site.op.cast(site.input(position), widest) for position in range(5)]
        results = site.again(*inputs, outputs=1)
        site.replace(site.op.cast(results, site.dtype(site.input(0))))


def _train(site: Site) -> None:
    """The means and variances of the batch, as defined in the text of the standard."""
    data, scale, bias, mean, variance = (site.input(position) for position in range(5))
    op, momentum = site.op, site.attribute("momentum")
    rank = site.rank(data, "neither are the axes that it reduces")
    axes = [axis for axis in range(rank) if axis != 1]
    along = op.constant(np.array([1, -1, *[1] * (rank - 2)]))
    current = op.make("ReduceMean", data, axes=axes, keepdims=1)
    centred = op.Sub(data, current)
    spread = op.make("ReduceMean", op.Mul(centred, centred), axes=axes, keepdims=1)
    normal = op.Div(centred, op.Sqrt(op.Add(spread, site.attribute("epsilon"))))
    dtype = site.dtype(data)
    result = op.Add(op.Mul(normal, op.Reshape(op.cast(scale, dtype), along)), op.Reshape(op.cast(bias, dtype), along))

    def running(before: Any, now: Any) -> Any:
        flat = op.cast(op.Reshape(now, op.constant(np.array([-1]))), site.dtype(before))
        return op.Add(op.Mul(before, momentum), op.Mul(flat, 1.0 - momentum))

    site.replace(
        result,
        running(mean, current) if site.is_used(1) else None,
        running(variance, spread) if site.is_used(2) else None,
    )
