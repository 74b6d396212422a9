"""Indices of a triangle of a matrix of dynamic size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.tril_indices")
@rewrite("torch.triu_indices")
def triangle_indices(original: Callable[..., Tensor], row: Any, col: Any, offset: Any = 0, **options: Any) -> Any:
    """The rows and the columns of the elements of a triangle, in the order of rows.

    tril_indices(int row, int col, int offset=0, *, ScalarType? dtype=long, Layout? layout=None, ...) -> Tensor

    torch would make dynamic sizes constant. The number of elements is a size that depends on data for torch.export.
    """
    if not any(isinstance(number, torch.SymInt) for number in (row, col, offset)):
        return NotImplemented
    whole = torch.ones(row, col, dtype=torch.bool, device=options.get("device"))
    triangle = whole.tril(offset) if original.__name__.startswith("tril") else whole.triu(offset)
    return triangle.nonzero().T.to(options.get("dtype") or torch.int64)
