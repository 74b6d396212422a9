"""Reads PyTorch's own operator database and creates its samples. No other module reads the database.

``torch.testing._internal`` is private, but torch has no public list of operators with sample inputs.
``tests/proof/conformance/test_conformance.py`` lists the attributes that are used.
"""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from opbridge.errors import InputError
from opbridge.proof.conformance.calls import Call, Constant

__all__ = ["DTYPES", "calls_of", "dtypes_of", "entries", "named"]

DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "int64", "int32", "bool", "complex64"),
    *("uint8", "int8", "int16", "complex128", "complex32", "float8_e4m3fn"),
)
"""The element types; by default, an entry uses the first one that it supports."""


@functools.cache
def entries() -> dict[str, Any]:
    """The entries by name: the operator, then the variant if there is one, as in "linalg.lstsq.grad_oriented".

    Raises:
        InputError: This installation of torch has no database, or a package that the database needs is missing.
    """
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise InputError(
            f"PyTorch's operator database can't be imported: {error}",
            fix=f"pip install {error.name}" if error.name == "expecttest" else "install another version of torch.",
        ) from error
    return {".".join(filter(None, (info.name, info.variant_test_name))): info for info in op_db}


def named(names: tuple[str, ...]) -> list[str]:
    """The entries with these names, in the database's order. The name of an operator includes its variants.

    Raises:
        InputError: A name is not in the database.
    """
    found = entries()
    if not names:
        return list(found)
    chosen = {entry for name in names for entry, info in found.items() if name in (entry, info.name)}
    unknown = [name for name in names if not any(name in (entry, info.name) for entry, info in found.items())]
    if unknown:
        close = [entry for entry in found if unknown[0].split(".")[-1] in entry][:5]
        raise InputError(
            f"PyTorch's operator database has no entry {unknown[0]!r}.",
            fix=f"did you mean {', '.join(close)}?" if close else "names are those of torch, as nn.functional.gelu.",
        )
    return [entry for entry in found if entry in chosen]


def dtypes_of(entry: str) -> list[str]:
    """The element types that PyTorch's CPU kernels support, float32 first."""
    supported = entries()[entry].supported_dtypes("cpu")
    return [name for name in DTYPES if getattr(torch, name) in supported]


def calls_of(entry: str, dtype: str) -> tuple[Call, ...]:
    """All samples of an entry in one element type. They are the same in every process."""
    info = entries()[entry]
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    calls = []
    for sample in info.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False):
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda tensor: tensor.detach().clone(), ((sample.input, *sample.args), sample.kwargs)
        )
        if entry == "tensor_split":  # A tensor of rank 0 holds the number of pieces.
            args = (args[0], *pytree.tree_map_only(torch.Tensor, _constant_number, args[1:]))
        calls.append(Call(info.op, args, kwargs))
    return tuple(calls)


def _constant_number(tensor: torch.Tensor) -> torch.Tensor | Constant:
    return tensor if tensor.dim() else Constant(tensor)
