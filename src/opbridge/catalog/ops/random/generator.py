"""Functions that draw with a generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.rand")
@rewrite("torch.randn")
@rewrite("torch.randint")
@rewrite("torch.randperm")
def without_generator(original: Callable[..., Tensor], *args: Any, **options: Any) -> Any:
    """The call without ``generator``, which makes torch refuse or fix dynamic sizes, even if it is None.

    randn.generator(SymInt[] size, *, Generator? generator, ScalarType? dtype=None, ...) -> Tensor

    An ONNX model draws from the generator of its engine.
    """
    if "generator" not in options:
        return NotImplemented
    return original(*args, **{name: value for name, value in options.items() if name != "generator"})
