"""Copies with broadcasting."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::copy", overrides="torch's mapping does not expand the source")
def copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Any:
    """``src`` expanded to the shape of ``self`` and converted to its dtype, if the shapes differ.

    copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor
    """
    if src.dim() == self.dim() and not any(map(_grows, src.shape, self.shape)):
        return NotImplemented
    return src.to(self.dtype).expand(self.shape)


def _grows(size: Any, wanted: Any) -> bool:
    """Whether one size is 1 and the other may differ."""
    return isinstance(size, int) and size == 1 and not (isinstance(wanted, int) and wanted == 1)
