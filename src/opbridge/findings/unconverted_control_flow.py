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


def used_list(use: str, place: str) -> Finding:
    """The finding for a list whose length is known only at run time, where its elements would have to be in Python.

    Args:
        use: What uses it: ``"'sqrt'"``.
        place: The line: ``"model.py:12"``; empty if it is not known.
    """
    message = f"A list whose length is known only at run time is used by {use}{f' at {place}' if place else ''}."
    fix = "join its elements with torch.stack or torch.cat, or write them into a tensor of a fixed size."
    return Finding(CODE, place, " ".join(message.split()), fix, sources=(place,) if place else ())


def uneven_list(place: str) -> Finding:
    """The finding for a list of tensors of different sizes, where they would have to be of one size.

    Args:
        place: The line: ``"model.py:12"``; empty if it is not known.
    """
    where = f" at {place}" if place else ""
    message = f"A list of tensors whose sizes depend on data is used by code that takes tensors of one size{where}."
    fix = "use torch.cat, torch.nn.utils.rnn.pad_sequence, `for` or an index there, or pad the tensors to one size."
    return Finding(CODE, place, message, fix, sources=(place,) if place else ())


def returned_list(place: str) -> Finding:
    """The finding for a model that returns a list whose length is known only at run time.

    Args:
        place: The line of the loop that fills it; empty if it is not known.
    """
    message = f"The model returns a list{f' from {place}' if place else ''} whose length is known only at run time."
    return Finding(
        CODE,
        place,
        f"{message} The number of outputs of an ONNX model is fixed.",
        "return torch.stack(rows), one tensor with all elements of the list.",
        sources=(place,) if place else (),
    )
