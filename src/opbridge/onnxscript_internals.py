"""The internals of onnxscript that opbridge changes, all in this file, with the reason.

* ``onnxscript.rewriter._matcher.SimplePatternMatcher._match_constant``: what torch.onnx optimizes an export with takes
  a number within 1e-8 of 0 for 0, and one within 1e-5 of 1 for 1. The ``eps`` of ``x / (norm + 1e-12)`` would go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = ["exact_constants"]


@contextlib.contextmanager
def exact_constants() -> Iterator[None]:
    """Let rewrite rules match a number only with the same number, as the tensor's type rounds it."""
    from onnxscript.rewriter._matcher import SimplePatternMatcher

    own = SimplePatternMatcher._match_constant

    def match(matcher: Any, pattern: Any, value: ir.Value) -> Any:
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None and tensor.size == 1 and isinstance(pattern.value, int | float):
            found = tensor.numpy().reshape(-1)
            if found[0] != np.array([pattern.value]).astype(found.dtype)[0]:
                return matcher.fail(f"{value.name} is {found[0]}, not {pattern.value}.")
        return own(matcher, pattern, value)

    SimplePatternMatcher._match_constant = match  # type: ignore[method-assign]
    try:
        yield
    finally:
        SimplePatternMatcher._match_constant = own  # type: ignore[method-assign]
