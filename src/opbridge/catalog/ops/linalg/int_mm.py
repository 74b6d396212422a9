"""Products of integer matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxscript import UINT8
from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import Sample, translation


def _samples() -> Sequence[Sample]:
    import torch

    generator = torch.Generator().manual_seed(0)
    left = torch.randint(-128, 128, (18, 24), generator=generator, dtype=torch.int8)
    right = torch.randint(-128, 128, (24, 16), generator=generator, dtype=torch.int8)
    return [Sample((left, right), name="int8"), Sample((left.to(torch.uint8), right), name="uint8")]


@translation("aten::_int_mm", samples=_samples)
def int_mm(self: Any, mat2: Any) -> Any:
    """The product of two matrices of 8-bit integers, in int32.

    _int_mm(Tensor self, Tensor mat2) -> Tensor
    """
    if self.dtype != UINT8.dtype:
        return op.MatMulInteger(self, mat2)
    # Without VNNI instructions, ONNX Runtime multiplies uint8 and int8 with saturation, but not int8 and uint8.
    return op.Transpose(op.MatMulInteger(op.Transpose(mat2), op.Transpose(self)))
