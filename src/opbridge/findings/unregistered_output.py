"""The model returns an object of a class that is not registered with torch.

What it means: an output is not a tensor, not a tuple, list, dict or registered class of tensors, and not an object
whose attributes are such (opbridge takes those apart).

Why it is a problem: the tensors inside the object become outputs of the graph, so torch must be able to find them.

Example::

    def forward(self, x):
        return {boxes, scores}       # a set; or an object of a class with __slots__

Fix: return the tensors in a dict or a tuple, or register the class: ``torch.export.register_dataclass(Detections)``.
"""

from __future__ import annotations

import re

from opbridge.findings.base import Failure, Finding
from opbridge.torch_graph.sources import source_of_function

CODE = "unregistered-output"

_PATTERN = re.compile(r"Found <class '(?P<name>[^']+)'> in output, which is not a known type")


def explain(failure: Failure) -> Finding | None:
    """Recognized by torch's message; the error is a bare RuntimeError."""
    match = _PATTERN.search(failure.text)
    if match is None:
        return None
    kind = match["name"].removeprefix("__main__.")
    name = kind.rpartition(".")[2]
    forward = source_of_function(failure.callee)
    message = f"forward{f' at {forward}' if forward else ''} returns a {kind}, unknown to torch."
    if kind in {"set", "frozenset", "generator", "map", "filter", "zip"}:
        fix = "return a tuple or a list of the tensors: a graph has a fixed number of outputs in a fixed order."
    else:
        fix = (
            f"return the tensors in a dict or a tuple; or, if {name} is a dataclass, "
            f"call torch.export.register_dataclass({name}) before the export."
        )
    found = failure.finding(CODE, kind, message, fix)
    return found if forward is None else Finding(**{**found.__dict__, "sources": (str(forward),)})
