"""torch.export cannot capture the model, for a reason that no other finding describes.

What it means: the model runs in PyTorch, but ``torch.export.export`` raises.

Why it is a problem: without a graph there is nothing to translate.

Example: Python features or torch functions that ``torch.export`` does not support.

Fix: the message states torch's reason, and the log file has all details. Rewrite the line with torch operators, or keep
it out of the graph: decorate the function with ``@opbridge.operator``, or replace a library's function with
``@opbridge.rewrite``. If the model itself raises the error, change the condition that leads to it.
"""

from __future__ import annotations

from opbridge.errors import described_error
from opbridge.findings.base import Failure, Finding, shortened
from opbridge.torch_graph.sources import module_path

CODE = "capture-failed"
ORDER = 3


def explain(failure: Failure) -> Finding:
    """Matches every failure."""
    place = failure.place
    text = f" at `{shortened(place.text)}`" if place is not None and place.text else ""
    target = module_path(place) if place is not None and place.is_installed else None
    if target is not None:
        fix = f"replace {target} during the capture by a function of torch operators: @opbridge.rewrite({target!r})."
    elif place is not None and place.text.startswith("raise"):
        fix = (
            "the model raises this error during the capture only. Change the condition that leads to that line: it may "
            "test the type or the value of a size or of a tensor."
        )
    else:
        fix = (
            "write that line with torch operators, or move it into a function decorated with "
            "@opbridge.operator('mylib::name'), which stays one node of the graph."
        )
    name = failure.name
    message = f"torch.export can't capture {name}: {described_error(failure.error, 200)}{text}{failure.at}"
    return failure.finding(CODE, name, message, fix)
