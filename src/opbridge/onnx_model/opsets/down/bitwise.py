"""BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot: new in opset 18. BitShift of signed integers: new in opset 28."""

from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down

_UNSIGNED = {8: ir.DataType.UINT8, 16: ir.DataType.UINT16, 32: ir.DataType.UINT32, 64: ir.DataType.UINT64}


@down("BitwiseNot", version=18)
def negated(site: Site) -> None:
    """The node becomes a difference from -1, in which every bit is set."""
    data = site.input(0)
    dtype = site.dtype(data)
    # The difference is within the type's range, so a wider type is exact.
    site.replace(site.op.Sub(site.op.like(-1 if dtype.is_signed() else dtype.max, data), data))


@down("BitwiseAnd", "BitwiseOr", "BitwiseXor", version=18)
def bit_by_bit(site: Site) -> None:
    """The bits are split into a separate axis, combined, and packed again."""
    one, other, op = site.input(0), site.input(1), site.op
    dtype = site.dtype(one)
    bits = dtype.bitwidth
    first, second = (_bits(site, value, bits) for value in (one, other))
    match site.node.op_type:
        case "BitwiseAnd":
            both = op.And(first, second)
        case "BitwiseOr":
            both = op.Or(first, second)
        case _:
            both = op.Xor(first, second)
    # The highest bit has a negative weight, which makes 64-bit two's complement exact in int64.
    weights = [1 << place for place in range(bits)]
    weights[-1] = -weights[-1]
    terms = op.Mul(op.cast(both, ir.DataType.INT64), op.constant(np.array(weights, dtype=np.int64)))
    total = op.ReduceSum(terms, op.constant(np.array([-1])), keepdims=0)
    if not dtype.is_signed() and bits < 64:
        modulus = op.constant(np.array(1 << bits, dtype=np.int64))
        total = op.Mod(total, modulus)
    site.replace(op.cast(total, dtype))


def _bits(site: Site, value: ir.Value | None, bits: int) -> Any:
    """The bits of each element along a new last axis, the lowest bit first."""
    op = site.op
    wide = op.cast(value, ir.DataType.INT64)
    column = op.Unsqueeze(wide, op.constant(np.array([-1])))
    zero = op.constant(np.array(0, dtype=np.int64))
    negative = op.Less(column, zero)
    # A negative number without its highest bit is larger by 2^63, computed without overflow.
    lower = op.Where(negative, op.Sub(column, op.constant(np.array(np.iinfo(np.int64).min))), column)
    places = op.constant(np.array([1 << place for place in range(min(bits, 63))], dtype=np.int64))
    set_ = op.Equal(op.Mod(op.Div(lower, places), op.constant(np.array(2))), op.constant(np.array(1)))
    return op.Concat(set_, negative, axis=-1) if bits == 64 else set_


@down("BitShift", version=28)
def shifted_unsigned(site: Site) -> None:
    """Signed integers are shifted as unsigned integers; shifts beyond the width follow opset 28."""
    data, by, op = site.input(0), site.input(1), site.op
    dtype, right = site.dtype(data), site.attribute("direction") == "RIGHT"
    bits = dtype.bitwidth
    unsigned = _UNSIGNED[bits]
    wide = op.cast(by, ir.DataType.INT64)
    beyond = op.Greater(wide, op.constant(np.array(bits - 1)))
    if dtype.is_signed():
        beyond = op.Or(beyond, op.Less(wide, op.constant(np.array(0))))
    within = op.cast(op.Where(beyond, op.constant(np.array(0)), wide), unsigned)
    if not dtype.is_signed() or not right:
        shifted = op.BitShift(op.cast(data, unsigned), within, direction=site.attribute("direction"))
        shifted = op.cast(shifted, dtype)
        site.replace(op.Where(beyond, op.like(0, data), shifted))
        return
    # A negative number is the complement of a nonnegative one, before and after the shift.
    negative = op.Less(data, op.like(0, data))
    flipped = op.Where(negative, op.Sub(op.like(-1, data), data), data)
    shifted = op.cast(op.BitShift(op.cast(flipped, unsigned), within, direction="RIGHT"), dtype)
    kept = op.Where(beyond, op.like(0, data), shifted)
    site.replace(op.Where(negative, op.Sub(op.like(-1, data), kept), kept))
