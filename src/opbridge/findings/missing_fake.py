"""A custom operator has no shape function (fake).

What it means: the operator is registered with torch, from C++ or Python, but torch cannot determine the shape and dtype
of its result without running it.

Why it is a problem: a model is captured on tensors without contents, so every operator needs a shape function.

Example::

    out = torch.ops.mmcv.roi_align_rotated(x, rois, 7, 7, 1.0, 2, True, False)

Fix: write the shape function next to the model::

    @opbridge.fake_for("mmcv::roi_align_rotated")
    def _(input, rois, pooled_height, pooled_width, *options):
        return input.new_empty(rois.shape[0], input.shape[1], pooled_height, pooled_width)
"""

from __future__ import annotations

import re
from typing import Any

from opbridge.findings.base import Failure, Finding, described_place, source_names
from opbridge.torch_graph.sources import SourceLine

CODE = "missing-fake"

_PATTERNS = (
    re.compile(r"There was no fake impl registered for <CustomOpDef\((?P<target>[\w.]+::[\w.]+)\)>"),
    re.compile(r"(?P<target>[\w.]+::[\w.]+): attempted to run this operator with Meta tensors"),
)


def explain(failure: Failure) -> Finding | None:
    """Recognized by the error's class, which has the operator as an attribute, or by the message of torch.library."""
    error = failure.caught("UnsupportedOperatorException")
    function = getattr(error, "func", None)
    target = str(function).replace(".", "::", 1).removesuffix(".default") if function is not None else None
    for reason in failure.chain if target is None else ():
        matches = [pattern.search(str(reason)) for pattern in _PATTERNS]
        target = next((match["target"].rstrip(".") for match in matches if match), None)
        if target is not None:
            break
    return finding(target, failure.place, failure.source) if target is not None else None


def finding(target: str, place: SourceLine | None, source: SourceLine | None) -> Finding:
    """Make the finding.

    Args:
        target: The operator: ``"mmcv::roi_align_rotated"``.
        place: The line that calls it, in the user's code or in a library.
        source: The user's line.
    """
    schema = _schema(target)
    parameters = ", ".join(argument.name for argument in schema.arguments) if schema is not None else "..."
    shown = f" with the schema {schema}" if schema is not None else ""
    return Finding(
        CODE,
        target,
        f"The operator {target}{described_place(place, source)} has no shape function (fake).",
        f"declare one next to the model, for the operator{shown}: put @opbridge.fake_for({target!r}) on a function "
        f"({parameters}) that returns empty tensors of the result's shape and dtype, such as x.new_empty(...).",
        sources=source_names(source),
    )


def _schema(target: str) -> Any:
    import torch

    namespace, _, rest = target.partition("::")
    name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return getattr(getattr(packet, overload or "default", None), "_schema", None)
