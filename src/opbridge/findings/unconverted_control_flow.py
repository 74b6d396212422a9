"""A branch or loop that depends on the values of tensors has no counterpart in a graph.

What it means: opbridge converts ``if``, ``while`` and ``for`` statements on tensors to ``torch.cond`` and
``torch.while_loop``. This one can't be converted: the branches return values of different ranks or types, a tensor
grows in each iteration, or the statement is in a generator or raises an error inside ``try``.

Why it is a problem: the graph has one form for all inputs.

Example::

    mask = None
    if lengths.min() < 10:
        mask = make_mask(lengths)          # None or a tensor, depending on the data

Fix: give the variable one form on every path, such as a mask of ones instead of None.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "unconverted-control-flow"


def finding(place: str, reason: str, fix: str) -> Finding:
    """Make the finding.

    Args:
        place: The line of the statement: ``"model.py:12"``.
        reason: A clause that says why it can't be converted.
        fix: What the user can do, as an instruction.
    """
    message = f"The control flow at {place} depends on a tensor's value and can't be converted: {reason}."
    return Finding(CODE, place, " ".join(message.split()), fix, sources=(place,))
