"""Compares results that are not unique by their definition: reconstruction, orthogonality, the selected elements.

The signs of singular vectors, the order of eigenvalues and the index of one of several equal elements are arbitrary.
Each function here turns the results of a call into numbers that are the same for every correct answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from opbridge.proof.conformance.calls import Call
from opbridge.proof.verify.compare import error_units, floor_units, judge
from opbridge.proof.verify.inputs import to_numpy

__all__ = ["definition_of", "differs_by_definition"]

Definition = Callable[[Call, Sequence[Tensor]], Sequence[Tensor]]


def _nothing(call: Call, results: Sequence[Tensor]) -> Sequence[Tensor]:
    """Uninitialised memory, of which only the shape and type are defined."""
    return ()


def _gram(vectors: Tensor) -> Tensor:
    """The Gram matrix plus 1, so that the error of its zeros is not measured relative to a rounding error."""
    return vectors.mH @ vectors + 1


def _svd(call: Call, results: Sequence[Tensor]) -> Sequence[Tensor]:
    """A = U S Vh, the columns of U and the rows of Vh orthonormal."""
    left, values, right = results
    count = values.shape[-1]
    product = (left[..., :count] * values.unsqueeze(-2)) @ right[..., :count, :]
    return values, product, _gram(left), _gram(right.mH)


def _svd_by_columns(call: Call, results: Sequence[Tensor]) -> Sequence[Tensor]:
    left, values, right = results
    return _svd(call, (left, values, right.mH))


def _low_rank(call: Call, results: Sequence[Tensor]) -> Sequence[Tensor]:
    """A = U S V^H if the rank of A allows it; else U^H A V = S with orthonormal U and V, which are random."""
    left, values, right = results
    if call.kwargs.get("M") is None:
        return values, (left * values.unsqueeze(-2)) @ right.mH
    a = call.args[0] @ call.args[1].mT - call.kwargs["M"]
    size = values.amax(-1, keepdim=True).unsqueeze(-1)
    unit = torch.eye(values.shape[-1], dtype=a.dtype)
    return _gram(left), _gram(right), (left.mH @ a @ right - torch.diag_embed(values)) / size + unit


def _eigh(call: Call, results: Sequence[Tensor]) -> Sequence[Tensor]:
    """A = V diag(w) V^H, V unitary."""
    values, vectors = results
    return values, (vectors * values.unsqueeze(-2)) @ vectors.mH, _gram(vectors)


def _eig(call: Call, results: Sequence[Tensor]) -> Sequence[Tensor]:
    """A V = V diag(w) with columns of length 1, in any order."""
    values, vectors = results
    rebuilt = torch.linalg.solve(vectors.mH, (vectors * values.unsqueeze(-2)).mH).mH
    return rebuilt, torch.linalg.vector_norm(vectors, dim=-2)


def _eigvals(call: Call, results: Sequence[Tensor]) -> Sequence[Tensor]:
    """The sums of the eigenvalues' powers, which determine them up to their order (Newton's identities)."""
    (values,) = results
    powers = torch.arange(1, values.shape[-1] + 1)
    return (values.unsqueeze(-1).pow(powers).sum(-2),)


def _qr(call: Call, results: Sequence[Tensor]) -> Sequence[Tensor]:
    """A = Q R, Q unitary; R alone by R^H R = A^H A."""
    left, right = results
    return (_gram(right),) if left.numel() == 0 else (left @ right, _gram(left), right.tril(-1))


def _selected(call: Call, results: Sequence[Tensor]) -> Sequence[Tensor]:
    """The values, and the elements that the indices select; any index of equal elements is correct."""
    name = getattr(call.function, "__name__", "")
    if len(results) == 1 and name != "argsort":
        return results
    *values, indices = results
    source = call.tensors[0]
    if source.dim() == 0 or not indices.dim():
        return (*values, source.reshape(-1)[indices.reshape(-1)])
    numbers = call.args[2:] if name in ("topk", "kthvalue") else call.args[1:]
    dim = call.kwargs.get("dim", next((value for value in numbers if type(value) is int), -1))
    kept = indices if indices.dim() == source.dim() else indices.unsqueeze(dim)
    return (*values, source.gather(dim, kept))


_DEFINITIONS: Mapping[str, Definition] = {
    **dict.fromkeys(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"), _nothing),
    "new_empty_strided": _nothing,
    "svd": _svd_by_columns,
    "linalg.svd": _svd,
    "svd_lowrank": _low_rank,
    "pca_lowrank": _low_rank,
    "linalg.eigh": _eigh,
    "linalg.eig": _eig,
    "linalg.eigvals": _eigvals,
    "qr": _qr,
    "linalg.qr": _qr,
    **dict.fromkeys(("kthvalue", "median", "mode", "nanmedian", "sort", "topk", "argsort"), _selected),
}
"""The definition by entry name."""


def definition_of(entry: str) -> str | None:
    """The name of the definition for an entry and its variants; None if the results are unique."""
    return next((name for name in _DEFINITIONS if entry == name or entry.startswith(f"{name}.")), None)


def differs_by_definition(entry: str, call: Call, arrays: Sequence[np.ndarray]) -> str | None:
    """Why the engine's results do not satisfy the entry's definition; None if they do.

    Args:
        entry: The name that :func:`definition_of` returned.
        call: The sample.
        arrays: The engine's results.
    """
    own = call()
    for array, expected in zip(arrays, own, strict=True):
        form = to_numpy(expected)
        if array.shape != form.shape or array.dtype != form.dtype:
            return f"the engine gives {array.dtype}{list(array.shape)}, PyTorch {form.dtype}{list(form.shape)}"
    definition = _DEFINITIONS[entry]
    float64_call = call.widened()
    result = [_as_float64(array, expected) for array, expected in zip(arrays, own, strict=True)]
    quantities = [
        definition(float64_call, values)
        for values in (result, [_to_float64(value) for value in own], [_to_float64(value) for value in float64_call()])
    ]
    # Indices have no rounding error; the elements that they select do.
    with_rounding = (value for value in (*own, *call.tensors) if value.dtype != torch.int64)
    type_ = to_numpy(next(with_rounding, own[0])).dtype
    for number, (found, expected, float64) in enumerate(zip(*quantities, strict=True)):
        reason = _differs(to_numpy(found), to_numpy(expected), to_numpy(float64), type_)
        if reason:
            return f"what defines the result (quantity {number} of {definition.__name__[1:]}): {reason}"
    return None


def _as_float64(array: np.ndarray, like: Tensor) -> Tensor:
    if like.is_complex():
        return torch.complex(*torch.from_numpy(array.astype(np.float64)).unbind(-1))
    return (
        _to_float64(torch.from_numpy(array.astype(np.float64))) if like.is_floating_point() else torch.from_numpy(array)
    )


def _to_float64(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _differs(found: np.ndarray, own: np.ndarray, float64: np.ndarray, dtype: np.dtype) -> str:
    if found.dtype.kind != "f":
        return "" if np.array_equal(found, own) else "the elements differ"
    units, torch_units = (error_units(value, own, float64, dtype) for value in (found, own))
    return judge(units, [torch_units], floor_units(dtype, found.shape[-1] if found.ndim else 1)).detail
