"""``linspace`` and ``logspace`` with dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.linspace")
def linspace(original: Callable[..., Tensor], start: Any, end: Any, steps: Any, **options: Any) -> Any:
    """``steps`` numbers from ``start`` to ``end``, of which torch would make dynamic ones constant.

    ``steps`` may be a tensor of rank 0, whose value torch asks for.

    linspace(Scalar start, Scalar end, int steps, *, ScalarType? dtype=None, ...) -> Tensor

    As in PyTorch's kernel, the first half counts from ``start`` and the second half from ``end``: both are exact.
    """
    is_tensor = isinstance(steps, Tensor)
    steps = steps.item() if is_tensor else steps
    if not any(isinstance(number, (torch.SymInt, torch.SymFloat)) for number in (start, end, steps)):
        return original(start, end, steps, **options) if is_tensor else NotImplemented
    dtype = options.pop("dtype", None) or torch.get_default_dtype()
    if not dtype.is_floating_point or "out" in options:
        return original(start, end, steps, dtype=dtype, **options)
    index = torch.arange(steps, dtype=torch.int64, device=options.get("device"))
    start, end = (
        number.to(dtype) if isinstance(number, Tensor) else torch.scalar_tensor(number, dtype=dtype)
        for number in (start, end)
    )
    step = end - start
    step = step / torch.scalar_tensor(torch.sym_max(steps - 1, 1), dtype=dtype)
    return torch.where(
        index < torch.sym_max(steps // 2, 1),
        start + step * index.to(dtype),
        end - step * (steps - 1 - index).to(dtype),
    )


@rewrite("torch.logspace")
def logspace(
    original: Callable[..., Tensor], start: Any, end: Any, steps: Any, base: float = 10.0, **options: Any
) -> Any:
    """``base`` to the power of ``steps`` numbers from ``start`` to ``end``.

    logspace(Scalar start, Scalar end, int steps, float base=10.0, *, ScalarType? dtype=None, ...) -> Tensor
    """
    dtype = options.get("dtype") or torch.get_default_dtype()
    exponents = linspace(original, start, end, steps, **options) if dtype.is_floating_point else NotImplemented
    return NotImplemented if exponents is NotImplemented else base**exponents
