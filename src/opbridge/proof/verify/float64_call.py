"""Calls an operator in float64: widens its arguments and dtypes, and uses the discrete results of the original call."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx.node import map_aggregate

__all__ = [
    "SOLVERS",
    "base_name",
    "has_jump",
    "jump_size",
    "low_precision",
    "merge_decisions",
    "narrow_like",
    "tensors",
    "widen",
    "widen_call",
    "widened_dtype",
]

# The floating-point results of these operators may change abruptly if their inputs change by a rounding error.
_JUMPS = frozenset(
    {
        "ceil",
        "floor",
        "round",
        "trunc",
        "fix",
        "frac",
        "sign",
        "sgn",
        "heaviside",
        "floor_divide",
        "fmod",
        "remainder",
        "div",
        "fake_quantize_per_tensor_affine",
        "fake_quantize_per_channel_affine",
    }
)
_COMPARED_IN_PLACE = frozenset({"eq_", "ne_", "gt_", "ge_", "lt_", "le_"})
_MODULI = frozenset({"fmod", "remainder"})
# The results of these operators depend on the bits or the type of their inputs, which float64 would change.
_BITWISE = frozenset({"aten::view.dtype", "aten::nextafter", "aten::frexp.Tensor"})

SOLVERS = frozenset(
    {"inverse", "linalg_inv", "linalg_inv_ex", "linalg_pinv", "pinverse", "linalg_solve", "linalg_solve_ex"}
    | {"linalg_solve_triangular", "triangular_solve", "linalg_tensorinv", "linalg_tensorsolve", "linalg_lu_solve"}
    | {"linalg_lstsq", "linalg_cholesky", "linalg_cholesky_ex", "cholesky", "cholesky_solve", "cholesky_inverse"}
    | {"det", "linalg_det", "logdet", "slogdet", "linalg_slogdet"}
)
"""Operators whose results are those of a matrix that differs by rounding errors: backward stable, as in N. J. Higham,
"Accuracy and Stability of Numerical Algorithms", 2002. With some matrices all their steps are exact by chance."""


def low_precision(dtype: torch.dtype) -> bool:
    """Whether float64 or complex128 is wider than ``dtype``."""
    return (dtype.is_floating_point or dtype.is_complex) and dtype not in (torch.float64, torch.complex128)


def widened_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for every floating-point type, complex128 for every complex type; other types are not changed."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def widen(value: Any) -> Any:
    """A tensor in its widened dtype; other values are not changed."""
    if not isinstance(value, torch.Tensor) or not low_precision(value.dtype):
        return value
    try:
        return value.detach().to(widened_dtype(value.dtype))
    except ValueError:  # Quantized weights of a class that has one dtype; the program computes with their parts.
        return value


def narrow_like(float64: Any, own: Any) -> Any:
    """The nested values ``float64`` with every tensor cast to its dtype in ``own``."""
    if isinstance(float64, torch.Tensor) and isinstance(own, torch.Tensor):
        return float64.to(own.dtype)
    if isinstance(float64, tuple | list):
        return type(float64)(narrow_like(w, o) for w, o in zip(float64, own, strict=True))
    if isinstance(float64, dict):
        return {key: narrow_like(item, own[key]) for key, item in float64.items()}
    return float64


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors of a nested value, in order."""
    found: list[torch.Tensor] = []
    map_aggregate(value, lambda item: found.append(item) if isinstance(item, torch.Tensor) else None)
    return found


def base_name(target: Any) -> str:
    """An operator's name without its namespace and its overload; empty for anything else."""
    return target.name().split("::")[-1].split(".")[0] if isinstance(target, torch._ops.OpOverload) else ""


def has_jump(target: Any) -> bool:
    """Whether the operator has a floating-point result and is discontinuous."""
    name = base_name(target)
    if name in _COMPARED_IN_PLACE:
        return True
    return name.rstrip("_") in _JUMPS and (name.rstrip("_") != "div" or "mode" in target.name())


def _with_dtype(target: Any, arguments: tuple[Any, Any], own: Any) -> tuple[Any, Any]:
    """Widen the dtype arguments; add one to a factory function (linspace, full) that would use the default dtype."""
    args, kwargs = map_aggregate(arguments, lambda v: widened_dtype(v) if isinstance(v, torch.dtype) else v)
    takes_dtype = any(argument.name == "dtype" and argument.kwarg_only for argument in target._schema.arguments)
    factory = takes_dtype and not tensors(arguments) and isinstance(own, torch.Tensor)
    if factory and kwargs.get("dtype") is None:
        kwargs = {**kwargs, "dtype": widened_dtype(own.dtype)}
    return args, kwargs


def widen_call(
    target: Any, own_arguments: tuple[Any, Any], float64_arguments: tuple[Any, Any], own: Any
) -> tuple[Any, bool]:
    """Call ``target`` in float64.

    Returns:
        The result, and whether the operator ran in its own dtype because it has no float64 implementation.
    """
    if target.name() not in _BITWISE:
        args, kwargs = _with_dtype(target, float64_arguments, own)
        try:
            return map_aggregate(target(*args, **kwargs), widen), False
        except (RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError):
            # The call in the model's dtype succeeded, so the operator does not support float64.
            pass
    args, kwargs = narrow_like(float64_arguments, own_arguments)
    result = target(*args, **kwargs)
    if target._schema.is_mutable:
        for float64, narrow in zip(tensors(float64_arguments), tensors((args, kwargs)), strict=True):
            if float64 is not narrow:
                float64.copy_(narrow)
        return tensors(float64_arguments)[0] if isinstance(result, torch.Tensor) else result, True
    return map_aggregate(result, widen), True


def jump_size(target: Any, float64_args: tuple[Any, ...], float64_kwargs: dict[str, Any]) -> Any:
    """Half of the smallest difference between two results on different sides of a discontinuity."""
    if base_name(target).rstrip("_") in _MODULI:
        return abs(float64_args[1]) / 2
    if base_name(target).startswith("fake_quantize"):
        scale = float64_args[1]
        return float(scale.min()) / 2 if isinstance(scale, torch.Tensor) else scale / 2
    return 0.5 * 10.0 ** -int(float64_kwargs.get("decimals", 0))


def _continuous(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def merge_decisions(
    target: Any, chosen: Any, natural: Any, float64_args: tuple[Any, ...], float64_kwargs: dict[str, Any]
) -> Any:
    """A result with the discrete part of ``chosen`` and the continuous part of ``natural``.

    If their shapes differ (``nonzero``), the result is ``chosen``, widened.
    """
    pairs = list(zip(tensors(chosen), tensors(natural), strict=False))
    if any(c.shape != n.shape for c, n in pairs):
        return map_aggregate(chosen, widen)
    jumps = has_jump(target)
    jump = jump_size(target, float64_args, float64_kwargs) if jumps else math.inf

    def merge(c: Any, n: Any) -> Any:
        if isinstance(c, tuple | list):
            return tuple(merge(a, b) for a, b in zip(c, n, strict=True))
        if not isinstance(c, torch.Tensor):
            return n if isinstance(c, float) else c
        if not _continuous(c.dtype):
            return c
        return torch.where((c - n).abs() > jump, widen(c), n) if jumps else n

    return merge(chosen, natural)
