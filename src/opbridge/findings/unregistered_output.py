"""The model returns an object of a class that torch can't look into.

What it means: an output is not a tensor, nor a tuple, list, dict or registered class of tensors, nor an object whose
attributes are such (those are taken apart).

Why it is a problem: the tensors inside become the outputs of the graph, so torch has to find them.

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
    """Recognised by torch's message: it raises a bare RuntimeError for this."""
    match = _PATTERN.search(failure.text)
    if match is None:
        return None
    kind = match["name"].removeprefix("__main__.")
    name = kind.rpartition(".")[2]
    forward = source_of_function(failure.callee)
    message = f"forward{f' at {forward}' if forward else ''} returns a {kind}, which torch can't look into."
    if kind in {"set", "frozenset", "generator", "map", "filter", "zip"}:
        fix = "return a tuple or a list of the tensors: a graph has a fixed number of outputs in a fixed order."
    else:
        fix = (
            f"return the tensors in a dict or a tuple; or, if {name} is a dataclass, "
            f"call torch.export.register_dataclass({name}) before the export."
        )
    found = failure.finding(CODE, kind, message, fix)
    return found if forward is None else Finding(**{**found.__dict__, "sources": (str(forward),)})
