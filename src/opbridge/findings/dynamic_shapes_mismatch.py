"""dynamic_shapes does not have the structure of the inputs.

What it means: ``dynamic_shapes`` names an input that ``forward`` does not have, omits one, or names a dimension that a
tensor does not have.

Why it is a problem: torch cannot determine which sizes vary.

Example::

    opbridge.export(model, (image,), dynamic_shapes={"img": {0: "batch"}}, path="out")     # forward(self, image)

Fix: pass a dict with an entry for each parameter of ``forward``: a dict from dimension to name for a tensor, or None
for an input whose sizes are all fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opbridge.errors import InputError
from opbridge.findings.base import Failure, Finding, shortened

CODE = "dynamic-shapes-mismatch"
ERROR = InputError


def explain(failure: Failure) -> Finding | None:
    """Recognized by dimensions that the inputs do not have, or by torch's own check of the structure."""
    for path, tensor, dimension, _ in declared_dimensions(failure):
        if not isinstance(dimension, int) or not 0 <= dimension < tensor.dim():
            shape = tuple(tensor.shape)
            return failure.finding(
                CODE,
                path,
                f"dynamic_shapes names dimension {dimension!r} of {path}, whose example has the shape {shape}.",
                f"use a dimension from 0 to {tensor.dim() - 1}." if tensor.dim() else "write None for this input.",
            )
    invalid = getattr(getattr(failure.error, "error_type", None), "name", "") == "INVALID_INPUT"
    if not (invalid and "dynamic_shapes" in failure.text):
        return None
    names = [name for name, _ in failure.inputs()]
    example = ", ".join(
        f"{name!r}: {{0: 'batch'}}" if index == 0 else f"{name!r}: None" for index, name in enumerate(names)
    )
    reason = shortened(failure.text.partition(". Alternatively")[0].splitlines()[0].replace("`", ""), 220)
    return failure.finding(
        CODE,
        "dynamic_shapes",
        f"dynamic_shapes does not have the structure of the inputs {names}: {reason}",
        f"write an entry for every input: dynamic_shapes={{{example}}}; None means that all sizes are fixed.",
    )


def declared_dimensions(failure: Failure) -> Iterator[tuple[str, Any, Any, Any]]:
    """Each dimension that dynamic_shapes declares: its input's path and tensor, the dimension, and the declaration."""
    shapes = failure.dynamic_shapes
    if shapes is None:
        return
    inputs = dict(failure.inputs())
    if not isinstance(shapes, Mapping):
        if not isinstance(shapes, tuple | list):
            return
        shapes = dict(zip(inputs, shapes, strict=False))
    for name, value in inputs.items():
        yield from _walk(name, value, shapes.get(name))


def _walk(path: str, value: Any, declared: Any) -> Iterator[tuple[str, Any, Any, Any]]:
    import torch

    if isinstance(value, torch.Tensor):
        if isinstance(declared, Mapping):
            pairs: Any = declared.items()
        else:
            pairs = enumerate(declared) if isinstance(declared, tuple | list) else ()
        yield from ((path, value, dimension, entry) for dimension, entry in pairs if entry is not None)
    elif isinstance(value, Mapping) and isinstance(declared, Mapping):
        for key in value:
            yield from _walk(f"{path}[{key!r}]", value[key], declared.get(key))
    elif isinstance(value, tuple | list) and isinstance(declared, tuple | list):
        for index, (part, entry) in enumerate(zip(value, declared, strict=False)):
            yield from _walk(f"{path}[{index}]", part, entry)
