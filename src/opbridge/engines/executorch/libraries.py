"""Libraries of kernels in this process's ExecuTorch, whose registry never removes a kernel."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from opbridge.engines.executorch import native
from opbridge.engines.executorch.out_variants import kernel_name
from opbridge.errors import EngineError
from opbridge.kernels.library import KernelLibrary

__all__ = ["load_libraries", "take_error"]

_lock = threading.Lock()
_loaded: dict[str, ctypes.CDLL] = {}
# The library that registered each operator, and the operator's index there.
_registered: dict[str, tuple[ctypes.CDLL, int]] = {}


def load_libraries(paths: Sequence[Path]) -> None:
    """Register the kernels of libraries. The libraries loaded last serve all programs of the process.

    Raises:
        InputError: A file is not a library of kernels for this platform.
        EngineError: The runtime does not take its operators.
    """
    native.runtime()
    for path in paths:
        described = KernelLibrary(path)
        key = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        with _lock:
            library = _loaded.get(key) or _opened(path)
            for index, operator in enumerate(described.operators):
                _serve(library, index, operator.target)
            _loaded[key] = library


def take_error() -> str:
    """The message of the last kernel that failed in this thread; empty if there was none."""
    with _lock:
        texts = [library.opbridge_executorch_take_error().decode(errors="replace") for library in _loaded.values()]
    return next(filter(None, texts), "")


def _opened(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(path).absolute()))
    if not hasattr(library, "opbridge_executorch_register_one"):
        raise EngineError(
            f"{Path(path).name} holds kernels, but not for executorch.",
            fix="pass the library of a bundle that was exported with --engine executorch.",
        )
    library.opbridge_executorch_register_one.restype = ctypes.c_char_p
    library.opbridge_executorch_runner.restype = ctypes.c_char_p
    library.opbridge_executorch_redirect.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    library.opbridge_executorch_redirect.restype = None
    library.opbridge_executorch_take_error.restype = ctypes.c_char_p
    return library


def _serve(library: ctypes.CDLL, index: int, target: str) -> None:
    if target not in _registered:
        problem = library.opbridge_executorch_register_one(index)
        if problem is None:
            _registered[target] = (library, index)
            native.added_kernels.add(kernel_name(target))
    else:
        run, data = ctypes.c_void_p(), ctypes.c_void_p()
        problem = library.opbridge_executorch_runner(index, ctypes.byref(run), ctypes.byref(data))
        if problem is None:
            first, number = _registered[target]
            first.opbridge_executorch_redirect(number, run, data)
    if problem is not None:
        raise EngineError(
            f"ExecuTorch does not take the kernel of {target}: {problem.decode(errors='replace')}.",
            fix="load it in a process of its own, or export without kernels.",
        )
