"""Element types by kind, as translations ask for them: ``self.dtype in FLOATS``."""

from __future__ import annotations

from onnxscript import BFLOAT16, DOUBLE, FLOAT, FLOAT16

__all__ = ["FLOATS", "HALVES"]

HALVES = frozenset({FLOAT16.dtype, BFLOAT16.dtype})
FLOATS = HALVES | {FLOAT.dtype, DOUBLE.dtype}
