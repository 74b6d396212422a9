"""A branch or body function of torch.cond, torch.while_loop or a similar operator cannot be captured.

What it means: torch traces these functions separately and more strictly. Both branches must return the same structure,
shapes and dtypes; a loop's body must not return an input unchanged; nothing outside the function may be modified.

Why it is a problem: each of these functions becomes a subgraph of an ONNX ``If`` or ``Loop``.

Example::

    torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x), (i, x))     # the body returns its input x

Fix: follow torch's suggestion in the message, often ``return x.clone()``.
"""

from __future__ import annotations

import re

from opbridge.errors import described_error
from opbridge.findings.base import Failure, Finding, shortened

CODE = "control-flow"

_NAMES = ("UncapturedHigherOrderOpError", "CondOpArgsMismatchError")


def explain(failure: Failure) -> Finding | None:
    """Recognized by the error's class; the operator, reason and hint are labelled lines of its message."""
    error = next((found for found in map(failure.caught, _NAMES) if found is not None), None)
    if error is None:
        return None
    operator = _labelled(str(error), "Higher Order Operator") or _named_in_source(failure) or "a control flow operator"
    reason = _labelled(str(error), "Explanation") or described_error(error, 200)
    hint = _labelled(str(error), "Hint") or (
        "make every branch return the same number of tensors with the same shapes and dtypes, and no unmodified input"
    )
    if "data-dependent branching" in reason:
        hint = "write the branch inside that function as another torch.cond, or with torch.where"
    if "mutation" in reason:
        hint = "return a new value from that function instead of changing a tensor in place"
    return failure.finding(
        CODE,
        operator,
        f"A function passed to {operator}{failure.at} can't be captured: {_first_sentence(reason)}.",
        f"{hint[:1].lower()}{_first_sentence(hint)[1:]}.",
    )


def _first_sentence(text: str) -> str:
    return shortened(re.split(r"\.\s+(?=[A-Z])", text)[0].rstrip(". "), 240)


def _labelled(text: str, label: str) -> str | None:
    match = re.search(rf"^\s*{label}: *(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else None


def _named_in_source(failure: Failure) -> str | None:
    match = re.search(r"torch\.(cond|while_loop|scan|map)\b", failure.source.text if failure.source else "")
    return match[0] if match else None
