"""A tensor's value is converted to a Python value: a bool, an int, a float or a string.

What it means: ``if``, ``while``, ``assert``, ``range``, ``int(...)``, ``float(...)``, ``.item()`` in a condition, or an
f-string receives a tensor whose value is known only at run time.

Why it is a problem: Python code runs once, during the capture, while the graph must be valid for every value.

Example::

    if x.sum() > 0:              # only one of the two branches could be captured
        return x
    return -x

Fix: use ``torch.cond`` or ``torch.where`` for a branch, ``torch.while_loop`` for a loop, and the tensor itself instead
of ``float(...)``. Put assertions, and strings that are kept, under ``if not torch.compiler.is_exporting():``.
"""

from __future__ import annotations

import re

from opbridge.findings.base import Failure, Finding, described_place, library_fix, shortened, source_names
from opbridge.torch_graph.sources import SourceLine, module_path
from opbridge.torch_graph.statements import Condition, condition_at

CODE = "data-dependent-value"

_VALUE = "(Size-like symbols: none)"
_FORMAT = re.compile(r"(FakeTensor|Sym(Int|Float|Bool))\.__format__")


def explain(failure: Failure) -> Finding | None:
    """Recognized by the error's class and the absence of a size-like symbol, or by a value's ``__format__``."""
    error = failure.caught("GuardOnDataDependentSymNode")
    value = error is not None and _VALUE in str(error)
    if not value and _FORMAT.search(failure.text) is None:
        return None
    return _finding(failure.place, failure.source, value)


def finding(place: SourceLine | None, source: SourceLine | None) -> Finding:
    """Make the finding.

    Args:
        place: The line that reads the value, in the user's code or in a library.
        source: The user's line.
    """
    return _finding(place, source, True)


def _finding(place: SourceLine | None, source: SourceLine | None, value: bool) -> Finding:
    condition = condition_at(place) if value else None
    text = f"`{shortened(condition or (place.text if place else 'forward'))}`{described_place(place, source)}"
    return Finding(
        CODE,
        condition.text if condition else (place.text if place else "forward"),
        f"{text} needs a tensor's value in Python, which is known only at run time.",
        _fix(place, condition, value),
        sources=source_names(source),
    )


def _fix(place: SourceLine | None, condition: Condition | None, value: bool) -> str:
    target = module_path(place) if place is not None and place.is_installed else None
    if target is not None:
        return library_fix(target, "that keeps the value a tensor")
    if not value:
        return "skip the string during the export: put the line under `if not torch.compiler.is_exporting():`."
    if condition is None:
        return _fix_conversion(place.text if place else "")
    if condition.keyword == "assert":
        return "put the assert under `if not torch.compiler.is_exporting():`."
    if condition.keyword in ("while", "for"):
        return (
            "write the loop with torch.while_loop(cond_fn, body_fn, (tensors,)); if the number of iterations is the "
            "same for every input, make it a Python number."
        )
    return (
        f"write torch.cond({condition.text}, true_fn, false_fn, (tensors,)) with the two branches as functions, or "
        "torch.where(condition, a, b) on tensors if both can be computed."
    )


def _fix_conversion(text: str) -> str:
    match = re.search(r"\b(int|float|bool|round)\(", text)
    called = f"{match[1]}(...)" if match else "the Python number"
    size = " For a size or an index write `.to(torch.int64).item()`." if match and match[1] in ("int", "round") else ""
    return f"compute with the tensor itself instead of {called}; a list index becomes torch.stack(...)[index].{size}"
