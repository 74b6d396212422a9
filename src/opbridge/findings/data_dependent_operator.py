"""An operator returns a Python value that depends on the contents of tensors.

What it means: ``torch.equal``, ``torch.allclose`` and the like return a Python bool, not a tensor.

Why it is a problem: tensors have no contents during the capture, so there is no value to return.

Example::

    if torch.equal(a, b):
        ...

Fix: compute a tensor (``(a == b).all()``) and branch on it with ``torch.cond``.
"""

from __future__ import annotations

from typing import Any

from opbridge.findings import torchscript_module
from opbridge.findings.base import Failure, Finding

CODE = "data-dependent-operator"

_INSTEAD = {"equal": "(a == b).all()", "allclose": "torch.isclose(a, b).all()", "is_nonzero": "a != 0"}


def explain(failure: Failure) -> Finding | None:
    """Recognized by the error's class; the error has the operator as an attribute."""
    error = failure.caught("DataDependentOutputException")
    function = getattr(error, "func", None)
    if function is None or _is_in_torchscript(failure, function):
        return None
    target = str(function).replace(".", "::", 1).removesuffix(".default")
    name = target.partition("::")[2].partition(".")[0]
    instead = _INSTEAD.get(name)
    return failure.finding(
        CODE,
        target,
        f"{target}{failure.at} returns a Python value that depends on the contents of a tensor.",
        (f"compute {instead}, which is a tensor, and" if instead else "compute a tensor instead, and")
        + " branch on it with torch.cond(pred, true_fn, false_fn, (tensors,)) or torch.where.",
    )


def _is_in_torchscript(failure: Failure, function: Any) -> bool:
    """Whether a TorchScript module calls the operator, whose code has no lines in Python."""
    name = str(function).split(".")[1]
    return torchscript_module.explain(failure) is not None and name not in getattr(failure.place, "text", "")
