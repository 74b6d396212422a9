"""Element types by name, the same for every engine: NumPy's names, and ml_dtypes' for the types that NumPy lacks."""

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
    """Whether NumPy itself has the type; the others come from ml_dtypes, and most libraries do not know them."""
    return not hasattr(ml_dtypes, name)
