"""torch.export can't capture the model, for a reason that opbridge has no finding for.

What it means: the model runs in PyTorch, but ``torch.export.export`` raises.

Why it is a problem: without a graph there is nothing to translate.

Example: Python features or torch functions that ``torch.export`` does not support.

Fix: the message has torch's reason, the log file the whole story. Rewrite the line with torch operators, or keep it out
of the graph: ``@opbridge.operator`` around the function, or ``@opbridge.rewrite`` for a library's.
"""

from __future__ import annotations

from opbridge.errors import described_error
from opbridge.findings.base import Failure, Finding, shortened
from opbridge.torch_graph.sources import module_path

CODE = "capture-failed"
ORDER = 3


def explain(failure: Failure) -> Finding:
    """Fits every failure."""
    place = failure.place
    text = f" at `{shortened(place.text)}`" if place is not None and place.text else ""
    target = module_path(place) if place is not None and place.is_installed else None
    if target is not None:
        fix = f"replace {target} while capturing by a function made of torch operators: @opbridge.rewrite({target!r})."
    else:
        fix = (
            "write that line with torch operators, or put it into a function decorated with "
            "@opbridge.operator('mylib::name'), which stays one node of the graph."
        )
    name = failure.name
    message = f"torch.export can't capture {name}: {described_error(failure.error, 200)}{text}{failure.at}"
    return failure.finding(CODE, name, message, fix)
