"""Whole sizes in models of transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opbridge.catalog.declare.spec import rewrite


@rewrite("transformers.utils.generic.torch_int")
def torch_int(original: Callable[..., Any], x: Any) -> Any:
    """A dynamic size as it is: Python's ``int`` freezes it on the example's."""
    return x if isinstance(x, torch.SymInt) else NotImplemented
