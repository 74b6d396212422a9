"""The example inputs do not match the parameters of forward.

What it means: there are too few or too many example inputs, or ``forward`` does not have a parameter of a given name.

Why it is a problem: the model cannot be called, so it cannot be captured.

Example::

    class Sum(nn.Module):
        def forward(self, x, y): ...
    opbridge.export(Sum(), (x,), path="out")      # y is missing

Fix: pass one example input for each parameter without a default.
"""

from __future__ import annotations

import inspect
from typing import Any

from opbridge.errors import InputError
from opbridge.findings.base import Failure, Finding
from opbridge.torch_graph.sources import source_of_function

CODE = "arguments-do-not-fit"
ERROR = InputError


def explain(failure: Failure) -> Finding | None:
    """Recognized by binding the inputs to the signature, as a call would."""
    function = failure.callee
    if function is None:
        return None
    if not isinstance(failure.args, tuple | list):
        kind = type(failure.args).__name__
        message = f"The example inputs are a {kind}, not a tuple."
        return failure.finding(CODE, "args", message, "pass them as a tuple: (x,) for a single input.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*failure.args, **failure.kwargs)
    except TypeError as error:
        return _misfit(failure, function, signature, error)
    return None


def _misfit(failure: Failure, function: Any, signature: inspect.Signature, error: TypeError) -> Finding:
    name = getattr(function, "__qualname__", "forward")
    source = source_of_function(inspect.unwrap(function))
    needed = [
        str(parameter.name)
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    given = [f"{len(failure.args)} positional", *(f"{key}=" for key in failure.kwargs)]
    where = f" at {source}" if source else ""
    message = f"The example inputs ({', '.join(given)}) do not match {name}{signature}{where}: {error}."
    names = ", ".join(f"{n!r}" for n in signature.parameters)
    keyword_only = "; those after * are keyword-only" if "*, " in str(signature) else ""
    fix = (
        f"pass an example input for each of {', '.join(needed)}"
        if needed
        else "do not pass more inputs than the function has parameters"
    )
    return failure.finding(CODE, name, message, f"{fix} (its parameters are {names}{keyword_only}).")
