"""Products with a logarithm, where 0 is stronger than an infinite one."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::xlogy", overrides="PyTorch's is NaN for 0 and NaN")
def xlogy(self: Any, other: Any) -> Tensor:
    """``self`` log(``other``); 0 where ``self`` is 0, unless ``other`` is NaN.

    xlogy.Tensor(Tensor self, Tensor other) -> Tensor
    xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor
    xlogy.Scalar_Other(Tensor self, Scalar other) -> Tensor
    """
    wanted = torch.result_type(self, other)
    dtype = wanted if wanted.is_floating_point else torch.get_default_dtype()
    x, y = (a.to(dtype) if isinstance(a, Tensor) else torch.scalar_tensor(a, dtype=dtype) for a in (self, other))
    product = torch.where(x == 0, 0, x * torch.log(y))
    return torch.where(y.isnan(), math.nan, product)
