"""Arrays as ncnn's tensors, which hold float32 and int32. int64 and bool are passed as int32, which ncnn only moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbridge.engines.ncnn import native
from opbridge.errors import EngineError
from opbridge.kernels.dtypes import numpy_dtype

__all__ = ["CARRIED", "NO_BATCH", "array_of", "mat_of"]

CARRIED = {"float32": "float32", "int32": "int32", "int64": "int32", "bool": "int32"}
"""The dtype of ncnn's tensor for each dtype that it can hold."""

NO_BATCH = 233
"""ncnn's number for a tensor without a batch axis."""

_LARGEST_RANK = 4
_INT32 = np.iinfo(np.int32)


def mat_of(array: np.ndarray, what: str, batch: int = NO_BATCH) -> Any:
    """An array as ncnn's tensor, which owns its memory.

    Args:
        array: An array of any shape.
        what: A description of the array for messages: ``"Input 'x'"``.
        batch: The batch axis.

    Raises:
        EngineError: ncnn has no such tensor.
    """
    if array.dtype.name not in CARRIED:
        raise EngineError(
            f"{what} is {array.dtype.name}, and ncnn computes in float32.", fix="convert it in the model."
        )
    if array.size == 0:
        raise EngineError(
            f"{what} is empty, {list(array.shape)}, and ncnn has no empty tensors.", fix="pass at least one element."
        )
    if array.dtype == np.int64 and (array.min() < _INT32.min or array.max() > _INT32.max):
        raise EngineError(
            f"{what} holds an int64 value outside the range of int32, in which ncnn stores it.",
            fix="pass smaller numbers.",
        )
    if array.ndim - (batch != NO_BATCH) > _LARGEST_RANK:
        raise EngineError(
            f"{what} has rank {array.ndim}, and ncnn takes 4 dimensions and a batch.",
            fix="merge dimensions before the model, or use another engine.",
        )
    carried = np.ascontiguousarray(array, CARRIED[array.dtype.name]).reshape(array.shape or 1)
    return native.runtime().Mat(carried, batch).clone()


def array_of(mat: Any, dtype: str, batch: int = NO_BATCH) -> np.ndarray:
    """A copy of ncnn's tensor in the original dtype."""
    kind = "f" if CARRIED[dtype] == "float32" else "i"
    return np.array(mat.numpy(kind, batch_index=batch)).astype(numpy_dtype(dtype), copy=False)
