"""Check the arrays against the model's inputs, before any engine runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from opbridge.engines.base import TensorSpec
from opbridge.errors import InputError
from opbridge.kernels.dtypes import numpy_dtype

__all__ = ["checked_feeds"]


def checked_feeds(inputs: Sequence[TensorSpec], feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays in the order of ``inputs``, in native byte order and C layout; nothing is converted or broadcast.

    Raises:
        InputError: A name is missing or unknown, or an array's type, dtype, rank or size does not fit. The message
            names the input, what it takes and what it got.
    """
    _check_names(inputs, feeds)
    sizes: dict[str, tuple[int, str]] = {}
    checked = {}
    for spec in inputs:
        array = _checked_array(spec, feeds[spec.name])
        _check_shape(spec, array, sizes)
        checked[spec.name] = array
    return checked


def _signature(spec: TensorSpec) -> str:
    return f"{spec.dtype}[{', '.join(str(size) for size in spec.shape)}]"


def _check_names(inputs: Sequence[TensorSpec], feeds: Mapping[str, np.ndarray]) -> None:
    expected = [spec.name for spec in inputs]
    missing = [name for name in expected if name not in feeds]
    unknown = [str(name) for name in feeds if name not in expected]
    if not missing and not unknown:
        return
    problems = [f"input {name!r} is missing" for name in missing]
    problems += [f"the model has no input {name!r}" for name in unknown]
    signatures = ", ".join(f"{spec.name}: {_signature(spec)}" for spec in inputs)
    raise InputError(
        f"The inputs don't match the model's: {'; '.join(problems)}.",
        fix=f"pass exactly these: {signatures or 'none'}.",
    )


def _checked_array(spec: TensorSpec, value: object) -> np.ndarray:
    if not isinstance(value, np.ndarray | np.generic):
        raise InputError(
            f"Input {spec.name!r} takes a NumPy array ({_signature(spec)}), but got a {type(value).__name__}.",
            fix=f"pass numpy.asarray(value, dtype={spec.dtype!r}), for a torch tensor value.numpy().",
        )
    array = np.asarray(value)
    expected = numpy_dtype(spec.dtype)
    fits = array.dtype.kind in "OUS" if spec.dtype == "str" else array.dtype.newbyteorder("=") == expected
    if not fits:
        raise InputError(
            f"Input {spec.name!r} takes dtype {spec.dtype}, but got {array.dtype.name}.",
            fix=f"convert it, if that is what you mean: array.astype({spec.dtype!r}).",
        )
    return np.asarray(array, dtype=expected, order="C")


def _check_shape(spec: TensorSpec, array: np.ndarray, sizes: dict[str, tuple[int, str]]) -> None:
    got = list(array.shape)
    if len(got) != len(spec.shape):
        raise InputError(
            f"Input {spec.name!r} takes rank {len(spec.shape)}, {_signature(spec)}, but got rank {len(got)}, {got}.",
            fix="add or remove dimensions, for example the batch dimension with array[None].",
        )
    for axis, (size, expected) in enumerate(zip(array.shape, spec.shape, strict=True)):
        if isinstance(expected, int):
            if size != expected:
                raise InputError(
                    f"Input {spec.name!r} takes {_signature(spec)}, but got shape {got}: dimension {axis} is {size}, "
                    f"not {expected}.",
                    fix=f"pass size {expected} there, or export the model with that dimension dynamic.",
                )
            continue
        known, owner = sizes.setdefault(expected, (size, spec.name))
        if size != known:
            raise InputError(
                f"Dimension {expected!r} is {known} in input {owner!r}, but {size} in input {spec.name!r} "
                f"(dimension {axis} of {got}).",
                fix=f"pass inputs that agree on the size of {expected!r}.",
            )
