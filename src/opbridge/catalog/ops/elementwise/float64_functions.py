"""Functions of float64 tensors as custom nodes with kernels: one table row per function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from onnxscript import DOUBLE
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, kernel_translation
from opbridge.kernels.declared import kernel_for


def _logarithm(base: float) -> Callable[[Any], Any]:
    return lambda x: op.Div(op.Log(x), op.CastLike(op.Constant(value_float=math.log(base)), x))


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "acos": op.Acos,
    "acosh": op.Acosh,
    "asin": op.Asin,
    "asinh": op.Asinh,
    "atan": op.Atan,
    "atanh": op.Atanh,
    "cosh": op.Cosh,
    "erf": op.Erf,
    "log10": _logarithm(10),
    "log2": _logarithm(2),
    "sinh": op.Sinh,
    "tan": op.Tan,
}
"""The nodes for the other element types, by the name in ``torch``."""


def _declarations(name: str, nodes: Callable[[Any], Any]) -> Iterator[Callable[..., Any]]:
    """The translation of one function to a custom node, and the node's body."""
    node = f"opbridge::{name.capitalize()}"
    kernel_for(node, "float64_functions.h")

    @kernel_translation(f"aten::{name}")
    def with_kernel(self: Any) -> Any:
        return custom_node(node, self) if self.dtype == DOUBLE.dtype else nodes(self)

    @body_for(node)
    def body(x: Tensor) -> Tensor:
        result: Tensor = getattr(torch, name)(x)
        return result

    with_kernel.__doc__ = f"``{name}`` of float64 as a custom node with a kernel.\n\n{name}(Tensor self) -> Tensor\n"
    body.__doc__ = "The nodes of the mapping without a kernel."
    for function, suffix in ((with_kernel, "with_kernel"), (body, "body")):
        function.__name__ = function.__qualname__ = f"{name}_{suffix}"
        yield function


globals().update(
    (function.__name__, function) for name, nodes in _FUNCTIONS.items() for function in _declarations(name, nodes)
)
