"""A number as a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation

OVERRIDES = "torch.onnx writes the number in float32 first, so a float64 tensor gets only 24 of its 53 bits"

_PAIRS = {ir.DataType.COMPLEX64: ir.DataType.FLOAT, ir.DataType.COMPLEX128: ir.DataType.DOUBLE}


@translation("aten::scalar_tensor", overrides=OVERRIDES)
def scalar_tensor(
    s: Any, dtype: int | None = None, layout: str = "", device: str = "", pin_memory: bool = False
) -> ir.Value:
    """A scalar as a tensor of rank 0; a complex number becomes a pair.

    scalar_tensor(Scalar s, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    kind = ir.DataType.FLOAT if dtype is None or dtype == -1 else ir.DataType(dtype)
    if not isinstance(s, bool | int | float | complex):
        return op.Cast(s, to=kind)
    if kind in _PAIRS:
        kind, value = _PAIRS[kind], np.array([complex(s).real, complex(s).imag])
    else:
        value = np.array(s)
    with np.errstate(over="ignore"):
        return op.Constant(value=ir.serde.serialize_tensor(ir.tensor(value.astype(kind.numpy()))))
