"""The parts of CUDA's driver API that a session needs.

The library is a part of the GPU's driver, so no package needs to be installed.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import numpy as np

from opbridge.errors import EngineError

__all__ = ["Memory", "Stream", "gpu_count"]


@functools.cache
def gpu_count() -> int:
    """The number of GPUs; 0 without a driver."""
    try:
        driver = _driver()
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    code = getattr(_driver(), name)(*arguments)
    if code != 0:
        raise EngineError(
            f"The GPU's driver failed: {name} gave error {code}.",
            fix="free memory of the GPU, or use smaller inputs; error 2 means out of memory.",
        )


@functools.cache
def _context() -> ctypes.c_void_p:
    """The primary context of the first GPU, which CUDA's runtime uses too."""
    device, context = ctypes.c_int(0), ctypes.c_void_p()
    _call("cuInit", 0)
    _call("cuDeviceGet", ctypes.byref(device), 0)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return context


def enter() -> None:
    """Make the GPU current in the calling thread."""
    _call("cuCtxSetCurrent", _context())


class Memory:
    """Memory of the GPU, freed with this object.

    Args:
        size: The number of bytes; 0 allocates one byte, since an address is needed.
    """

    def __init__(self, size: int) -> None:
        self._address = ctypes.c_uint64(0)
        _call("cuMemAlloc_v2", ctypes.byref(self._address), ctypes.c_size_t(max(size, 1)))

    def __del__(self) -> None:
        if self._address.value:
            _driver().cuMemFree_v2(self._address)

    @property
    def address(self) -> int:
        """The address in the GPU's memory."""
        return self._address.value

    def fill(self, array: np.ndarray) -> None:
        """Copy an array to this memory."""
        if array.nbytes:
            _call("cuMemcpyHtoD_v2", self._address, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))

    def read(self, array: np.ndarray) -> None:
        """Copy this memory to an array."""
        if array.nbytes:
            _call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), self._address, ctypes.c_size_t(array.nbytes))


class Stream:
    """A CUDA stream."""

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        _call("cuStreamCreate", ctypes.byref(self._handle), 0)

    def __del__(self) -> None:
        if self._handle.value:
            _driver().cuStreamDestroy_v2(self._handle)

    @property
    def handle(self) -> int:
        """The stream's handle."""
        return self._handle.value or 0

    def wait(self) -> None:
        """Wait until all work of the stream is done."""
        _call("cuStreamSynchronize", self._handle)
