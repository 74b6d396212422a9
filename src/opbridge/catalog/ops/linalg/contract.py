"""opt_einsum's contraction of torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("opt_einsum.contract.contract")
def contract(original: Callable[..., Any], subscripts: Any, *operands: Any, **options: Any) -> Any:
    """``einsum`` of torch tensors; opt_einsum would choose an order by their sizes, which makes these constant."""
    both = isinstance(subscripts, str) and all(isinstance(operand, Tensor) for operand in operands)
    if not both or options.keys() - {"optimize", "use_blas", "memory_limit", "backend"}:
        return NotImplemented
    return torch.einsum(subscripts, *operands)
