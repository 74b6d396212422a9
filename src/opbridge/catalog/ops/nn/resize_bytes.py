"""Resizing of images of bytes with given weights, as matrix products or as a custom node with a kernel."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation
from opbridge.catalog.formulas.resizing import bytes_by_products
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::ResizeBytes", "resize_bytes.h")


@body_for("opbridge::ResizeBytes")
@decomposition("opbridge::resize_bytes")
def by_products(image: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Two matrix products in float64.

    resize_bytes(Tensor image, Tensor rows, Tensor columns) -> Tensor
    """
    return bytes_by_products(image, rows, columns)


@kernel_translation("opbridge::resize_bytes")
def with_kernel(image: Any, rows: Any, columns: Any) -> Any:
    """``resize_bytes`` as a custom node with a kernel.

    resize_bytes(Tensor image, Tensor rows, Tensor columns) -> Tensor
    """
    return custom_node("opbridge::ResizeBytes", image, rows, columns)
