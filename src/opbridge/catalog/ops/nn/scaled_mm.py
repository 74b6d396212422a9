"""Matrix products of scaled 8-bit floats."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from onnxscript import FLOAT, FLOAT8E4M3FN, FLOAT8E5M2
from onnxscript import opset19 as op

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import translation


@functools.cache
def _overflow_is_nan(of_one_type: bool) -> bool:
    """Whether PyTorch's result is NaN, not the largest number, if it is too large for float8_e4m3fn.

    This depends on the processor, and on whether both matrices have one type.
    """
    large, one = torch.full((16, 16), 448.0).to(torch.float8_e4m3fn), torch.ones(())
    other = large if of_one_type else large.to(torch.float32).to(torch.float8_e5m2)
    return bool(torch.ops.aten._scaled_mm(large, other.t(), one, one, out_dtype=large.dtype).isnan().any())


def _product(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, dtype: int | None) -> Any:
    left, right = (op.Mul(op.Cast(x, to=FLOAT.dtype), scale) for x, scale in ((a, scale_a), (b, scale_b)))
    result = op.MatMul(left, right)
    result = result if bias is None else op.Add(result, op.Cast(bias, to=FLOAT.dtype))
    wanted = a.dtype if dtype in (None, -1) else dtype
    # In PyTorch an overflow is infinite in float8_e5m2; float8_e4m3fn, which has no infinity, saturates or is NaN.
    overflows = wanted == FLOAT8E5M2.dtype
    if wanted == FLOAT8E4M3FN.dtype:
        overflows = keeps_nan() and _overflow_is_nan(a.dtype == b.dtype)
    return op.Cast(result, to=wanted, saturate=int(not overflows))


@translation("aten::_scaled_mm", opset=19)
def scaled_mm(
    self: Any,
    mat2: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: int = -1,
    use_fast_accum: bool = False,
) -> Any:
    """(a scale_a) @ (b scale_b) + bias in float32, with scales per matrix or per row and column.

    _scaled_mm(Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? bias=None,
    Tensor? scale_result=None, ScalarType? out_dtype=None, bool use_fast_accum=False) -> Tensor

    PyTorch's CPU kernel ignores ``scale_result`` too.
    """
    return _product(self, mat2, scale_a, scale_b, bias, out_dtype)


@translation("aten::_scaled_mm_v2", opset=19)
def scaled_mm_by_recipe(
    self: Any,
    mat2: Any,
    scale_a: Sequence[Any],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Any],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Any = None,
    out_dtype: int = -1,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Any:
    """The product with scales per matrix or per row and column; PyTorch supports other recipes only on GPUs.

    _scaled_mm_v2(Tensor self, Tensor mat2, Tensor[] scale_a, int[] recipe_a, int[] swizzle_a, Tensor[] scale_b,
    int[] recipe_b, int[] swizzle_b, Tensor? bias, ScalarType? out_dtype, int[] contraction_dim=[],
    bool use_fast_accum=False) -> Tensor
    """
    return _product(self, mat2, scale_a[0], scale_b[0], bias, out_dtype)
