"""A model with example inputs, and which of their dimensions are dynamic, for benchmarks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

__all__ = ["BATCH", "DYNAMIC", "IMAGE", "IMAGES", "TOKENS", "Example"]

DYNAMIC = torch.export.Dim.DYNAMIC
IMAGE = {1: DYNAMIC, 2: DYNAMIC}
IMAGES = {0: DYNAMIC, 2: DYNAMIC, 3: DYNAMIC}
BATCH = {0: DYNAMIC}
TOKENS = {0: DYNAMIC, 1: DYNAMIC}


@dataclasses.dataclass(frozen=True)
class Example:
    """A model with example inputs.

    Attributes:
        model: In evaluation mode.
        args: Positional inputs.
        kwargs: Inputs by keyword.
        dynamic_shapes: As ``opbridge.export`` takes it.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    dynamic_shapes: Any
