"""The model's control flow depends on a size that is known only at run time.

What it means: a condition, a loop or an operator needs a size such as the number of selected boxes or of non-zero
elements. During the capture, such a size has no value yet.

Why it is a problem: the graph must be valid for every value, so torch cannot choose one branch.

Example::

    boxes = boxes[scores > 0.5]
    if boxes.numel() > 4000:            # depends on the scores
        ...

Fix: if the condition always has the same result, state that on the line before:
``torch._check(boxes.numel() <= 4000)``. Otherwise keep both branches with
``torch.cond(boxes.numel() > 4000, true_fn, false_fn, (boxes,))``. If the code belongs to a library, replace the library
function during the capture: ``@opbridge.rewrite("torchvision.ops.boxes.batched_nms")``.
"""

from __future__ import annotations

import re

from opbridge.findings.base import Failure, Finding, library_fix, shortened
from opbridge.torch_graph.sources import module_path
from opbridge.torch_graph.statements import Condition, condition_at

CODE = "data-dependent-guard"

_VALUE = "(Size-like symbols: none)"


def explain(failure: Failure) -> Finding | None:
    """Recognized by the error's class; for a tensor's value, unlike a size, the message has no size-like symbol."""
    error = failure.caught("GuardOnDataDependentSymNode")
    if error is None or _VALUE in str(error):
        return None
    condition = condition_at(failure.place)
    guard = shortened(getattr(error, "cond", _expression(str(error))))
    if condition is None:
        message = f"{_line(failure)} needs {guard!r} during the capture, a size that depends on data."
    else:
        message = f"`{shortened(condition)}`{failure.at} depends on a size that is known only at run time."
    return failure.finding(CODE, condition.text if condition else guard, message, _fix(failure, condition))


def _expression(text: str) -> str:
    match = re.search(r"data-dependent expression (.+?)(?: \(unhinted|\.\s|$)", text)
    return match[1] if match else "a condition"


def _line(failure: Failure) -> str:
    text = f"`{shortened(failure.place.text)}`" if failure.place and failure.place.text else "The model"
    return f"{text}{failure.at}"


def _fix(failure: Failure, condition: Condition | None) -> str:
    place = failure.place
    target = module_path(place) if place is not None and place.is_installed else None
    if target is not None:
        return library_fix(target, "without that condition")
    if condition is None:
        return (
            "on the line before, state a condition that always holds for that size, such as torch._check(n > 0) or "
            "torch._check(n <= 100) with n = y.shape[0]; or pad to a fixed size."
        )
    if condition.keyword == "for":
        return (
            f"process {condition.text} as one tensor instead of item by item, or write the loop with torch.while_loop."
        )
    if condition.keyword == "assert":
        return f"replace the assert by torch._check({condition.holds})."
    if condition.keyword == "while":
        return "write the loop with torch.while_loop(cond_fn, body_fn, (tensors,))."
    return (
        f"if the result is always the same, state it on the line before: torch._check({condition.opposite}) or "
        f"torch._check({condition.holds}); to keep both branches write torch.cond({condition.holds}, true_fn, "
        f"false_fn, (tensors,))."
    )
