"""Weights that are converted one at a time, while a model is written."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

__all__ = ["converted_weight"]


def converted_weight(tensor: ir.TensorProtocol, name: str, *dtypes: ir.DataType) -> ir.Value:
    """An initializer of these numbers in the last of the types, brought through the others.

    Nothing is converted before its numbers are read, and none are kept: neither the converted ones nor, of a weight
    that lies in a file, the original ones. What does not fit becomes infinite.
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
