"""Pow: a separate type for the exponent, and integer bases, since opset 12."""

from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down

_LARGEST = 64
# From the 64th power on, every base except 0, 1 and -1 overflows int64; for these, all higher bits are equivalent.
_BITS = 6


@down("Pow", version=15)
def exponent_in_float(site: Site) -> None:
    """An exponent in bfloat16 is widened."""
    exponent = site.input(1)
    if exponent is not None and exponent.dtype is ir.DataType.BFLOAT16:
        site.set_inputs(site.input(0), site.op.cast(exponent, ir.DataType.FLOAT))


@down("Pow", version=12)
def one_type(site: Site) -> None:
    """The exponent is cast to the type of the base; for integers the node becomes products."""
    base, exponent, op = site.input(0), site.input(1), site.op
    if base is None or base.dtype is None:
        # An engine that needs equal types reports it.
        return
    dtype = base.dtype
    if not dtype.is_integer():
        site.set_inputs(base, op.cast(exponent, dtype))
        return
    value = known(exponent)
    if value is not None and value.size == 1 and float(value.item()).is_integer() and 1 <= value.item() <= _LARGEST:
        result = base
        for _ in range(int(value.item()) - 1):
            result = op.Mul(result, base)
        site.replace(op.Expand(result, op.constant(np.array(value.shape or (1,)))) if value.ndim else result)
    elif dtype is ir.DataType.INT32:
        # Every int32 is exact in float64, and so is every result that fits into int32.
        power = op.Pow(op.cast(base, ir.DataType.DOUBLE), op.cast(exponent, ir.DataType.DOUBLE))
        site.replace(op.cast(power, dtype))
    else:
        site.replace(_by_squaring(site, base, op.Cast(exponent, to=int(dtype))))


def _by_squaring(site: Site, base: Any, exponent: Any) -> Any:
    """The exact int64 product of base^(2^i) over the bits of the exponent; for negative ones, the truncated inverse."""
    op = site.op
    one, two, zero = (op.like(number, base) for number in (1, 2, 0))
    result, square, rest = one, base, op.Where(op.Less(exponent, zero), zero, exponent)
    for _ in range(_BITS):
        odd = op.Equal(op.Mod(rest, two), one)
        result = op.Mul(result, op.Where(odd, square, one))
        square, rest = op.Mul(square, square), op.Div(rest, two)
    result = op.Mul(result, op.Where(op.Greater(rest, zero), square, one))
    sign = op.Where(op.Equal(op.Mod(exponent, two), zero), op.Mul(base, base), base)
    unit = op.Equal(op.Mul(base, base), one)
    return op.Where(op.Less(exponent, zero), op.Where(unit, sign, zero), result)
