"""What the built-in collections share: the first inputs that a model runs on, and weights that make outputs differ."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

__all__ = ["BATCH", "DYNAMIC", "IMAGES", "first_that_runs", "without_zeros"]

DYNAMIC = torch.export.Dim.DYNAMIC
BATCH = {0: DYNAMIC}
IMAGES = {0: DYNAMIC, 2: DYNAMIC, 3: DYNAMIC}


def first_that_runs(candidates: Iterable[Callable[[], Mapping[str, Any]]]) -> Mapping[str, Any]:
    """The first candidate whose model can be built and runs on its inputs in eager PyTorch.

    Args:
        candidates: Functions that return what an entry returns, as a dict with ``model``, ``args`` and ``kwargs``.

    Raises:
        Exception: None of them runs; it is the exception of the first one.
    """
    first: Exception | None = None
    for make in candidates:
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                made = make()
                made["model"].eval()
                made["model"](*made.get("args", ()), **made.get("kwargs", {}))
        except Exception as error:  # Models raise various types for sizes that they do not take.
            first = first or error
        else:
            return made
    assert first is not None
    raise first


def without_zeros(model: nn.Module) -> nn.Module:
    """Give parameters that begin as zeros other values: a last layer of zeros would hide every error before it."""
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.05)
    return model
