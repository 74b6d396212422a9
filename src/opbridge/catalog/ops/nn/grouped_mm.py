"""Matrix products by group: each row is multiplied by the matrix of its group, as in a mixture of experts."""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

from typing import Any

from onnxscript import FLOAT, INT64, script
from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import Sample, translation


def _samples() -> list[Sample]:
    import torch

    def sample(name: str, first: tuple[int, ...], second: tuple[int, ...], ends: list[int] | None) -> Sample:
        generator = torch.Generator().manual_seed(0)
        left, right = (torch.randn(shape, generator=generator) for shape in (first, second))
        offsets = () if ends is None else (torch.tensor(ends, dtype=torch.int32),)
        return Sample((left, right, *offsets), name=name)

    return [
        sample("rows", (12, 16), (3, 16, 8), [4, 9, 12]),
        sample("empty groups", (12, 16), (4, 16, 8), [0, 12, 12, 12]),
        sample("columns", (3, 8, 16), (16, 12), [4, 8, 12]),
        sample("inner", (8, 12), (12, 16), [4, 8, 12]),
        sample("batch", (3, 8, 16), (3, 16, 12), None),
    ]


@script(default_opset=op)
def _by_rows(rows: FLOAT[...], matrices: FLOAT[...], ends: INT64[...]) -> FLOAT[...]:
    """Groups of rows; rows after the last group are 0."""
    zero = op.Constant(value_ints=[0])
    one = op.Constant(value_ints=[1])
    width = op.Shape(matrices, start=2, end=3)
    nothing = op.CastLike(op.Constant(value_float=0.0), rows)
    result = op.Expand(nothing, op.Concat(zero, width, axis=0))
    start = zero
    for i in range(op.Size(ends)):
        place = op.Reshape(i, one)
        end = op.Gather(ends, place, axis=0)
        part = op.MatMul(op.Slice(rows, start, end, zero), op.Gather(matrices, i, axis=0))
        result = op.Concat(result, part, axis=0)
        start = op.Identity(end)
    rest = op.Expand(nothing, op.Concat(op.Shape(rows, start=0, end=1) - start, width, axis=0))
    return op.Concat(result, rest, axis=0)


@script(default_opset=op)
def _by_inner(left: FLOAT[...], right: FLOAT[...], ends: INT64[...]) -> FLOAT[...]:
    """Groups along the axis of summation, with one product each."""
    zero = op.Constant(value_ints=[0])
    one = op.Constant(value_ints=[1])
    shape = op.Concat(zero, op.Shape(left, start=0, end=1), op.Shape(right, start=1, end=2), axis=0)
    result = op.Expand(op.CastLike(op.Constant(value_float=0.0), left), shape)
    start = zero
    for i in range(op.Size(ends)):
        place = op.Reshape(i, one)
        end = op.Gather(ends, place, axis=0)
        part = op.MatMul(op.Slice(left, start, end, one), op.Slice(right, start, end, zero))
        result = op.Concat(result, op.Unsqueeze(part, zero), axis=0)
        start = op.Identity(end)
    return result


@translation(
    "aten::_grouped_mm",
    samples=_samples,
    overrides="torch decomposes it into one product per group, whose sizes depend on data",
)
def grouped_mm(self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """The product of each group; ``offs`` (groups,) are the ends of the groups in the 2-D operand.

    _grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor

    (rows, K) and (groups, K, N) give (rows, N); (groups, M, K) and (K, columns) give (M, columns); (M, K) and (K, N)
    give (groups, M, N) with groups along K. A loop multiplies only the elements of each group. PyTorch does not yet
    support ``bias`` or another ``out_dtype``.
    """
    if offs is None:
        return op.MatMul(self, mat2)
    ends = op.Cast(offs, to=INT64.dtype)
    if len(self.shape) == 2 and len(mat2.shape) == 2:
        return _by_inner(self, mat2, ends)
    if len(self.shape) == 2:
        return _by_rows(self, mat2, ends)
    columns = _by_rows(op.Transpose(mat2, perm=[1, 0]), op.Transpose(self, perm=[0, 2, 1]), ends)
    return op.Transpose(columns, perm=[1, 0])


@translation("transformers::grouped_mm_fallback", samples=lambda: _samples()[:2])
def grouped_mm_fallback(input: Any, weight: Any, offs: Any) -> Any:
    """The operator that transformers calls if it cannot use torch's: groups of rows.

    grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor
    """
    return _by_rows(input, weight, op.Cast(offs, to=INT64.dtype))
