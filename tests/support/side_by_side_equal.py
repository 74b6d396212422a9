"""What "equal" means when an exported model stands beside eager PyTorch, in one place.

The outputs of the model in ONNX Runtime are equal to those of the eager module if

* there are as many as the module returns tensors and numbers (None is no output), in the same order;
* each has the module's dtype (a Python number is int64, float32 or bool) and exactly its shape; a complex tensor may be
  a real one with a last dimension of 2;
* integers and booleans have the same values, except for as many as eager PyTorch itself gives other values in float64
  (near ties), or where the situation states a tolerance;
* where eager PyTorch gives NaN or an infinity, so does the model, and nowhere else;
* every other value x satisfies ``|x - r| <= max(10 e, f (|r| + rms(r)), t)``: r is the result of eager PyTorch in
  float64; e is the largest error of eager PyTorch in its own dtype against r, over the output; f is the floor of the
  dtype (FLOORS); rms(r) is the root mean square of r over the output; t is the tolerance that the situation states, 0
  for nearly all.

If eager PyTorch does not run in float64, or makes another number or other shapes of outputs there, its result in its
own dtype takes the place of r, and e is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

__all__ = ["FLOORS", "difference", "shape_difference"]

FLOORS = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}
"""The relative error that is always allowed. In float32 and float64 it is what a long chain of operators accumulates in
another order of summation; in the half types it is 4 of their steps (eps)."""

OWN_ERROR = 10.0


def difference(
    own: Sequence[torch.Tensor],
    wide: Sequence[torch.Tensor] | None,
    found: Sequence[torch.Tensor],
    tolerance: float = 0.0,
) -> str:
    """The first difference between a model's outputs and eager PyTorch's, in one line; empty if they are equal.

    Args:
        own: What the eager module returns in its own dtype.
        wide: What it returns in float64; None if it does not run there.
        found: What the model returns.
        tolerance: A stated absolute tolerance.
    """
    comparable = wide is not None and [one.shape for one in wide] == [one.shape for one in own]
    references = wide if comparable and wide is not None else own
    text = shape_difference([own], found)
    for position, (expected, reference, actual) in enumerate(zip(own, references, found, strict=False)):
        text = text or _labelled(position, _difference(_real(expected), _real(reference), _real(actual), tolerance))
    return text


def shape_difference(runs: Sequence[Sequence[torch.Tensor]], found: Sequence[torch.Tensor]) -> str:
    """The first difference in number, dtype or shape; a size in which the runs of the eager module differ is free."""
    own = runs[0]
    if len(own) != len(found):
        return f"{len(found)} outputs, where eager PyTorch has {len(own)}"
    for position, outputs in enumerate(zip(*runs, strict=True)):
        expected, actual = [_real(one) for one in outputs], _real(found[position])
        if actual.dtype != expected[0].dtype:
            dtypes = f"dtype {_name(actual.dtype)}, where eager PyTorch has {_name(expected[0].dtype)}"
            return _labelled(position, dtypes)
        sizes = [set(axis) for axis in zip(*(one.shape for one in expected), strict=True)]
        fits = len(sizes) == actual.ndim and all(
            len(allowed) > 1 or size in allowed for size, allowed in zip(actual.shape, sizes, strict=True)
        )
        if not fits:
            shapes = f"shape {tuple(actual.shape)}, where eager PyTorch has {tuple(expected[0].shape)}"
            return _labelled(position, shapes)
    return ""


def _labelled(position: int, text: str) -> str:
    return f"output {position}: {text}" if text else ""


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _difference(own: torch.Tensor, wide: torch.Tensor, found: torch.Tensor, tolerance: float) -> str:
    if own.numel() == 0:
        return ""
    if own.is_floating_point():
        return _difference_of_floats(own, wide.double(), found, tolerance)
    off = (own.to(torch.int64) - found.to(torch.int64)).abs() > tolerance
    ties = int((own != wide).sum()) if wide.dtype == own.dtype else 0
    return f"{_share(off)} of the integers or booleans differ" if int(off.sum()) > ties else ""


def _difference_of_floats(own: torch.Tensor, wide: torch.Tensor, found: torch.Tensor, tolerance: float) -> str:
    floor = FLOORS.get(own.dtype, FLOORS[torch.bfloat16])
    own64, found64 = own.double(), found.double()
    finite = own64.isfinite()
    same = (own64 == found64) | (own64.isnan() & found64.isnan())
    unlike = (~finite & ~same) | (finite & ~found64.isfinite())
    if unlike.any():
        return f"NaN or infinite at other places: {_share(unlike)}"
    reference = torch.where(wide.isfinite(), wide, own64)[finite]
    if reference.numel() == 0:
        return ""
    error = (found64[finite] - reference).abs()
    own_error = float((own64[finite] - reference).abs().max())
    rms = math.sqrt(float(reference.square().mean()))
    budget = (floor * (reference.abs() + rms)).clamp_min(max(OWN_ERROR * own_error, tolerance))
    wrong = error > budget
    if not wrong.any():
        return ""
    worst = int((error / budget.clamp_min(1e-300)).argmax())
    return (
        f"{_share(wrong)} of the values differ, at worst {float(found64[finite][worst]):.6g} for "
        f"{float(reference[worst]):.6g} (allowed {float(budget[worst]):.3g}, eager's own error {own_error:.3g})"
    )


def _share(mask: torch.Tensor) -> str:
    return f"{int(mask.sum())} of {mask.numel()}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
