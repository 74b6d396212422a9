"""Conversion of sizes to integers in transformers models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opbridge.catalog.declare.spec import rewrite


@rewrite("transformers.utils.generic.torch_int")
def torch_int(original: Callable[..., Any], x: Any) -> Any:
    """Keep a dynamic size unchanged; Python's ``int`` would make it constant."""
    return x if isinstance(x, torch.SymInt) else NotImplemented
