"""Element types by name, the same names in every engine: NumPy's, and ml_dtypes' for those NumPy lacks."""

from __future__ import annotations

import ml_dtypes
import numpy as np

__all__ = ["is_native", "numpy_dtype"]


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of ``"float32"``, ``"bfloat16"``, ``"str"`` (an array of Python strings) and so on."""
    if name == "str":
        return np.dtype(object)
    extension = getattr(ml_dtypes, name, None)
    return np.dtype(name if extension is None else extension)


def is_native(name: str) -> bool:
    """Whether NumPy itself has the type; the others are ml_dtypes' and foreign to most libraries."""
    return not hasattr(ml_dtypes, name)
