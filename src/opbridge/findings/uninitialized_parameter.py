"""A lazy module has not been initialized.

What it means: ``nn.LazyLinear`` and similar modules infer their sizes from the first input, and have not had one yet.

Why it is a problem: their parameters have no shape, so they cannot be stored in a graph.

Example::

    opbridge.export(nn.Sequential(nn.LazyLinear(10)), (x,), path="out")

Fix: run the model once on the example inputs, ``model(*args)``, and load trained weights before the export. A lazy
parameter that the model computes, like the kernel of a resampler, is initialized on a copy of the model.
"""

from __future__ import annotations

from opbridge.findings.base import Failure, Finding

CODE = "uninitialized-parameter"


def explain(failure: Failure) -> Finding | None:
    """Recognized by the class of the model's parameters and buffers."""
    import torch

    if not isinstance(failure.model, torch.nn.Module) or isinstance(failure.model, torch.jit.ScriptModule):
        return None
    named = [*failure.model.named_parameters(), *failure.model.named_buffers()]
    lazy = [name for name, value in named if torch.nn.parameter.is_lazy(value)]
    if not lazy:
        return None
    rest = f" and {len(lazy) - 1} more" if len(lazy) > 1 else ""
    return failure.finding(
        CODE,
        lazy[0],
        f"The parameter {lazy[0]!r}{rest} of the model has no shape yet: a lazy module has not seen an input.",
        "run the model once on the example inputs, model(*args), and load its weights before the export.",
    )
