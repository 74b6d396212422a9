"""Comparison of shapes with sizes that are unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["are_equal"]


def are_equal(shape: ir.Shape | None, other: ir.Shape | None) -> bool:
    """Whether two shapes are known to be equal: each size is the same number or has the same name."""
    if shape is None or any(not isinstance(size, int) and size.value is None for size in shape):
        return False
    return shape == other
