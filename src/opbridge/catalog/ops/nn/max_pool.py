"""Pooling with windows of dynamic sizes, as ``max_pool2d(x, x.shape[2:])``, and ``max_pool1d`` of a dynamic length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.formulas.pooling import is_always, over_dynamic_windows


def _max_pool(rank: int) -> Callable[..., Any]:
    @rewrite(f"torch.nn.functional.max_pool{rank}d")
    @rewrite(f"torch.max_pool{rank}d")
    def max_pool(
        original: Callable[..., Tensor],
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        plain = not (ceil_mode or return_indices) and is_always(padding, 0) and is_always(dilation, 1)
        windows = over_dynamic_windows(input, rank, kernel_size, stride, Tensor.amax) if plain else None
        if windows is None and rank == 1 and not return_indices and isinstance(input.shape[-1], torch.SymInt):
            # torch.max_pool1d asks for the length as a number.
            given = (kernel_size, () if stride is None else stride, padding, dilation)
            lists = (list(one) if isinstance(one, (list, tuple)) else [one] for one in given)
            sizes = [[first, *own] if own else [] for first, own in zip((1, 1, 0, 1), lists, strict=True)]
            return torch.max_pool2d(input.unsqueeze(-2), *sizes, ceil_mode).squeeze(-2)
        return NotImplemented if windows is None else windows

    max_pool.__name__ = max_pool.__qualname__ = f"max_pool{rank}d"
    max_pool.__doc__ = f"""The largest element of each window of dynamic size.

    max_pool{rank}d(Tensor self, int[{rank}] kernel_size, int[{rank}] stride=[], int[{rank}] padding=0,
    int[{rank}] dilation=1, bool ceil_mode=False) -> Tensor
    """
    return max_pool


def _lp_pool(rank: int) -> Callable[..., Any]:
    @rewrite(f"torch.nn.functional.lp_pool{rank}d")
    def lp_pool(
        original: Callable[..., Tensor],
        input: Tensor,
        norm_type: float,
        kernel_size: Any,
        stride: Any = None,
        ceil_mode: bool = False,
    ) -> Any:
        sums = over_dynamic_windows(input**norm_type, rank, kernel_size, stride, Tensor.sum) if not ceil_mode else None
        return NotImplemented if sums is None else sums.sign() * sums.abs() ** (1 / norm_type)

    lp_pool.__name__ = lp_pool.__qualname__ = f"lp_pool{rank}d"
    lp_pool.__doc__ = f"""The power mean of each window of dynamic size, without the division by its size.

    lp_pool{rank}d(Tensor input, float norm_type, int[{rank}] kernel_size, int[{rank}]? stride=None,
    bool ceil_mode=False) -> Tensor
    """
    return lp_pool


max_pool1d, max_pool2d, max_pool3d = map(_max_pool, (1, 2, 3))
lp_pool1d, lp_pool2d, lp_pool3d = map(_lp_pool, (1, 2, 3))
