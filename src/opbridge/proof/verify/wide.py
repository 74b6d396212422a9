"""One operator call in float64: arguments and dtype arguments widened, discrete results of the narrow call taken."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx.node import map_aggregate

__all__ = [
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

# The floating-point results of these operators jump when the inputs move by a rounding error.
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
# These operators read the bits or the type of a number, which float64 would change.
_BITWISE = frozenset({"aten::view.dtype", "aten::nextafter", "aten::frexp.Tensor"})


def low_precision(dtype: torch.dtype) -> bool:
    """Whether float64 (or complex128) is wider than ``dtype``."""
    return (dtype.is_floating_point or dtype.is_complex) and dtype not in (torch.float64, torch.complex128)


def widened_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for every real floating-point type, complex128 for every complex one, others as they are."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def widen(value: Any) -> Any:
    """A tensor in its widened dtype; anything else as it is."""
    if isinstance(value, torch.Tensor) and low_precision(value.dtype):
        return value.detach().to(widened_dtype(value.dtype))
    return value


def narrow_like(wide: Any, own: Any) -> Any:
    """Nested ``wide`` values with every tensor in the dtype that it has in ``own``."""
    if isinstance(wide, torch.Tensor) and isinstance(own, torch.Tensor):
        return wide.to(own.dtype)
    if isinstance(wide, tuple | list):
        return type(wide)(narrow_like(w, o) for w, o in zip(wide, own, strict=True))
    if isinstance(wide, dict):
        return {key: narrow_like(item, own[key]) for key, item in wide.items()}
    return wide


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors of a nested value, in order."""
    found: list[torch.Tensor] = []
    map_aggregate(value, lambda item: found.append(item) if isinstance(item, torch.Tensor) else None)
    return found


def _base_name(target: Any) -> str:
    return target.name().split("::")[-1].split(".")[0] if isinstance(target, torch._ops.OpOverload) else ""


def has_jump(target: Any) -> bool:
    """Whether the operator is discontinuous with a floating-point result."""
    name = _base_name(target)
    if name in _COMPARED_IN_PLACE:
        return True
    return name.rstrip("_") in _JUMPS and (name.rstrip("_") != "div" or "mode" in target.name())


def _with_dtype(target: Any, arguments: tuple[Any, Any], own: Any) -> tuple[Any, Any]:
    """Dtype arguments widened; one added to a factory (linspace, full) that would use the default dtype."""
    args, kwargs = map_aggregate(arguments, lambda v: widened_dtype(v) if isinstance(v, torch.dtype) else v)
    takes_dtype = any(argument.name == "dtype" and argument.kwarg_only for argument in target._schema.arguments)
    factory = takes_dtype and not tensors(arguments) and isinstance(own, torch.Tensor)
    if factory and kwargs.get("dtype") is None:
        kwargs = {**kwargs, "dtype": widened_dtype(own.dtype)}
    return args, kwargs


def widen_call(
    target: Any, own_arguments: tuple[Any, Any], wide_arguments: tuple[Any, Any], own: Any
) -> tuple[Any, bool]:
    """Call ``target`` in float64.

    Returns:
        The result, and whether the operator has no float64 implementation, so that it ran in its own dtype.
    """
    if target.name() not in _BITWISE:
        args, kwargs = _with_dtype(target, wide_arguments, own)
        try:
            return map_aggregate(target(*args, **kwargs), widen), False
        except (RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError):
            # The call in the model's dtype went well, so it is the type that the operator refuses.
            pass
    args, kwargs = narrow_like(wide_arguments, own_arguments)
    result = target(*args, **kwargs)
    if target._schema.is_mutable:
        for wide, narrow in zip(tensors(wide_arguments), tensors((args, kwargs)), strict=True):
            if wide is not narrow:
                wide.copy_(narrow)
        return tensors(wide_arguments)[0] if isinstance(result, torch.Tensor) else result, True
    return map_aggregate(result, widen), True


def jump_size(target: Any, wide_args: tuple[Any, ...], wide_kwargs: dict[str, Any]) -> Any:
    """How far two results are apart at least when they are on different sides of a jump, halved."""
    if _base_name(target).rstrip("_") in _MODULI:
        return abs(wide_args[1]) / 2
    if _base_name(target).startswith("fake_quantize"):
        scale = wide_args[1]
        return float(scale.min()) / 2 if isinstance(scale, torch.Tensor) else scale / 2
    return 0.5 * 10.0 ** -int(wide_kwargs.get("decimals", 0))


def _continuous(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def merge_decisions(
    target: Any, chosen: Any, natural: Any, wide_args: tuple[Any, ...], wide_kwargs: dict[str, Any]
) -> Any:
    """A result with the discrete part of ``chosen`` and the continuous part of ``natural``.

    Where the two have different shapes (the count of a nonzero), all of ``chosen`` is taken, widened.
    """
    pairs = list(zip(tensors(chosen), tensors(natural), strict=False))
    if any(c.shape != n.shape for c, n in pairs):
        return map_aggregate(chosen, widen)
    jumps = has_jump(target)
    jump = jump_size(target, wide_args, wide_kwargs) if jumps else math.inf

    def merge(c: Any, n: Any) -> Any:
        if isinstance(c, tuple | list):
            return tuple(merge(a, b) for a, b in zip(c, n, strict=True))
        if not isinstance(c, torch.Tensor):
            return n if isinstance(c, float) else c
        if not _continuous(c.dtype):
            return c
        return torch.where((c - n).abs() > jump, widen(c), n) if jumps else n

    return merge(chosen, natural)
