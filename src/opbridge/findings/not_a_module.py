"""The model is not a module.

What it means: the object passed as the model is a class, a checkpoint or another object that is not a
``torch.nn.Module``.

Why it is a problem: there is no forward pass to capture.

Example::

    opbridge.export(torch.load("weights.pt"), (x,), path="out")     # a dict of tensors

Fix: build the module, load the weights into it, and pass the module.
"""

from __future__ import annotations

from opbridge.errors import InputError
from opbridge.findings.base import Failure, Finding

CODE = "not-a-module"
ERROR = InputError


def explain(failure: Failure) -> Finding | None:
    """Recognized by the model's type."""
    import torch

    model = failure.model
    if isinstance(model, torch.nn.Module):
        return None
    name = model.__name__ if isinstance(model, type) else type(model).__name__
    what = f"the class {name} itself" if isinstance(model, type) else f"of type {name}"
    fix = f"pass an instance, {name}(...)" if isinstance(model, type) else "build the torch.nn.Module and pass that"
    if isinstance(model, dict):
        fix = "build the module, call its load_state_dict(...) with this dict, and pass the module"
    return failure.finding(CODE, name, f"The model is {what}, not a torch.nn.Module.", f"{fix}.")
