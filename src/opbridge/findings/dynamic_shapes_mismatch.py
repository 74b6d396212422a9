"""dynamic_shapes does not have the structure of the inputs.

What it means: ``dynamic_shapes`` names an input that ``forward`` does not have, omits one, names a dimension that a
tensor does not have, or gives an int a name.

Why it is a problem: torch cannot determine which sizes vary.

Example::

    opbridge.export(model, (image,), dynamic_shapes={"img": {0: "batch"}}, path="out")     # forward(self, image)

Fix: pass a dict with an entry for each parameter of ``forward``: a dict from dimension to name for a tensor, or None
for an input whose sizes are all fixed.
"""

from __future__ import annotations

from opbridge.errors import InputError
from opbridge.findings.base import Failure, Finding, shortened

CODE = "dynamic-shapes-mismatch"
ERROR = InputError


def explain(failure: Failure) -> Finding | None:
    """Recognized by dimensions that the inputs do not have, or by torch's own check of the structure."""
    for place in failure.places():
        if place.is_number:
            continue
        axis, rank = place.axis, place.value.dim()
        if not isinstance(axis, int) or not 0 <= axis < rank:
            shape = tuple(place.value.shape)
            return failure.finding(
                CODE,
                place.path,
                f"dynamic_shapes names dimension {axis!r} of {place.path}, whose example has the shape {shape}.",
                f"use a dimension from 0 to {rank - 1}." if rank else "write None for this input.",
            )
    if "input integers as dynamic through named" in failure.text:
        ints = ", ".join(name for name, value in failure.inputs() if type(value) is int)
        return failure.finding(
            CODE,
            ints,
            f"dynamic_shapes gives a name to an input that is an int, which torch.export does not take: {ints}.",
            "write torch.export.Dim.DYNAMIC for it, or, with a range, torch.export.Dim.DYNAMIC(min=0, max=9).",
        )
    invalid = getattr(getattr(failure.error, "error_type", None), "name", "") == "INVALID_INPUT"
    # Torch compares the parts of an object of a registered class apart from the others.
    in_object = failure.dynamic_shapes is not None and failure.text.startswith(("Node type mis", "Node arity mis"))
    if not in_object and not (invalid and "dynamic_shapes" in failure.text):
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
        "an object takes a list or a dict with an entry for each of its parts, or None."
        if in_object
        else f"write an entry for every input: dynamic_shapes={{{example}}}; None means that all sizes are fixed.",
    )
