"""A tensor copied into another one's shape."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::copy", overrides="torch's mapping does not expand the source")
def copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Any:
    """``src`` in the shape and the element type of ``self``, where it has another shape.

    copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor
    """
    if src.dim() == self.dim() and not any(map(_grows, src.shape, self.shape)):
        return NotImplemented
    return src.to(self.dtype).expand(self.shape)


def _grows(size: Any, wanted: Any) -> bool:
    """Whether a size is 1, and the other may be another one."""
    return isinstance(size, int) and size == 1 and not (isinstance(wanted, int) and wanted == 1)
