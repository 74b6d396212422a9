"""Kernels of linear algebra, called by themselves."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import pytest

import opbridge
from opbridge.kernels.compiler import build
from opbridge.kernels.library import KernelLibrary

HEADERS = Path(opbridge.__file__).parent / "catalog" / "ops" / "linalg"

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++"))), reason="not run: kernels need a C++ compiler"
)


@functools.cache
def kernel(name: str) -> KernelLibrary:
    """The library of one header."""
    return KernelLibrary(build([HEADERS / f"{name}.h"]))


def run(library: KernelLibrary, *tensors: Any, **attributes: int) -> list[Any]:
    """The outputs of the library's only operator."""
    import torch

    (operator,) = library.operators
    arrays = [tensor.numpy() for tensor in tensors]
    numbers = {name: int(value) for name, value in attributes.items()}
    return [torch.from_numpy(array) for array in library.run(operator.target, arrays, numbers)]
