"""x log(y), which is 0 for x = 0 even if the logarithm is infinite."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::xlogy", overrides="PyTorch's result for 0 and NaN is NaN")
def xlogy(self: Any, other: Any) -> Tensor:
    """``self`` log(``other``); 0 if ``self`` is 0, unless ``other`` is NaN.

    xlogy.Tensor(Tensor self, Tensor other) -> Tensor
    xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor
    xlogy.Scalar_Other(Tensor self, Scalar other) -> Tensor
    """
    wanted = torch.result_type(self, other)
    dtype = wanted if wanted.is_floating_point else torch.get_default_dtype()
    x, y = (a.to(dtype) if isinstance(a, Tensor) else torch.scalar_tensor(a, dtype=dtype) for a in (self, other))
    product = torch.where(x == 0, 0, x * torch.log(y))
    return torch.where(y.isnan(), math.nan, product)
