"""The model fails on these example inputs in PyTorch itself.

What it means: calling ``model(*args, **kwargs)`` raises an exception, without any capture.

Why it is a problem: a model that does not run cannot be captured.

Example::

    opbridge.export(nn.Linear(4, 2), (torch.rand(3, 5),), path="out")       # 5 features instead of 4

Fix: correct the example inputs or the model until ``model(*args, **kwargs)`` runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opbridge.errors import described_error
from opbridge.findings import modules
from opbridge.findings.base import Failure, Finding

_PACKAGE = Path(__file__).parents[1]

CODE = "model-fails"
ORDER = 1


def explain(failure: Failure) -> Finding | None:
    """Recognized by running the model without rewrites; its buffers, attributes and the random state are restored."""
    import torch

    out_of_memory = isinstance(failure.error, MemoryError | torch.OutOfMemoryError)
    if out_of_memory or not isinstance(failure.model, torch.nn.Module):
        return None
    try:
        with _unchanged(failure.model):
            failure.model(*_copied(failure.args), **_copied(dict(failure.kwargs)))
    except Exception as error:
        if _is_raised_by_a_conversion(error):
            return None
        eager = dataclasses.replace(failure, error=error)
        explained = _explained(eager)
        return explained or eager.finding(
            CODE,
            failure.name,
            f"The model fails on its example inputs in PyTorch itself: {described_error(error, 200)}{eager.at}",
            "make model(*args, **kwargs) run first: correct the example inputs (number, shape, dtype) or that line.",
        )
    return None


def _is_raised_by_a_conversion(error: Exception) -> bool:
    """Whether what a capture puts in the place of Python's control flow raised the error, itself or in torch."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    file = traceback.tb_frame.f_code.co_filename if traceback is not None else ""
    own = tuple(str(_PACKAGE / folder) for folder in ("capture/control_flow", "torch_graph"))
    return "tracing tensor" in str(error) or file.startswith(own)


def _explained(eager: Failure) -> Finding | None:
    """What a more specific finding says of the error: torch.cond captures its branches in eager mode too."""
    specific = (module for module in modules() if getattr(module, "ORDER", 0) < ORDER and hasattr(module, "explain"))
    return next((found for module in specific if (found := module.explain(eager)) is not None), None)


def _copied(value: Any) -> Any:
    import torch

    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, value)


@contextlib.contextmanager
def _unchanged(model: Any) -> Iterator[None]:
    import torch

    from opbridge.torch_graph.originals import original_functions
    from opbridge.torch_graph.random_numbers import own_random_numbers

    tensors = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}
    attributes = [(part, dict(part.__dict__), dict(part._buffers)) for part in model.modules()]
    try:
        with own_random_numbers(), original_functions():
            yield
    finally:
        for part, values, buffers in attributes:
            part.__dict__.clear()
            part.__dict__.update(values)
            part._buffers.clear()
            part._buffers.update(buffers)
        with torch.no_grad():
            for buffer, before in tensors.values():
                buffer.copy_(before)
