"""opt_einsum's contraction of torch tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite

_OPTIONS = frozenset({"optimize", "use_blas", "memory_limit", "backend"})


@rewrite("opt_einsum.contract.contract")
def contract(original: Callable[..., Any], subscripts: Any, *operands: Any, **options: Any) -> Any:
    """``einsum`` of torch tensors; opt_einsum would choose an order by their sizes, which makes these constant."""
    both = isinstance(subscripts, str) and all(isinstance(operand, Tensor) for operand in operands)
    return torch.einsum(subscripts, *operands) if both and not options.keys() - _OPTIONS else NotImplemented


@rewrite("opt_einsum.contract.contract_expression")
def contract_expression(original: Callable[..., Any], subscripts: str, *shapes: Any, **options: Any) -> Any:
    """``einsum`` as a function of tensors, if one of their sizes is dynamic."""
    sizes = torch.utils._pytree.tree_leaves(shapes)
    if options.keys() - _OPTIONS or not any(isinstance(size, torch.SymInt) for size in sizes):
        return NotImplemented
    return functools.partial(torch.einsum, subscripts)
