"""Converts weights one at a time, while a model is written."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

__all__ = ["converted_weight"]


def converted_weight(tensor: ir.TensorProtocol, name: str, *dtypes: ir.DataType) -> ir.Value:
    """An initializer whose numbers are converted to each of the types in turn.

    The conversion runs when the numbers are read, and its result is not kept; the original numbers of a weight in a
    file are not kept either. Numbers that are too large for a type become infinite.
    """

    def convert() -> ir.Tensor:
        array = tensor.numpy()
        with np.errstate(over="ignore"):
            for dtype in dtypes:
                array = array.astype(dtype.numpy())
        release = getattr(tensor, "release", None)
        if release is not None:
            release()
        return ir.Tensor(array, dtype=dtypes[-1], name=name)

    shape = ir.Shape(tensor.shape)
    lazy = ir.LazyTensor(convert, dtype=dtypes[-1], shape=shape, name=name)
    return ir.Value(name=name, type=ir.TensorType(dtypes[-1]), shape=ir.Shape(tensor.shape), const_value=lazy)
