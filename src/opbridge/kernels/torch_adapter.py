"""A kernel as the CPU implementation of its PyTorch operator.

The kernel handles calls on CPU tensors whose element types and ranks it covers. The operator's Python function handles
everything else: other devices and types, gradients (it is differentiated), and shapes (it runs on fake tensors).
"""

from __future__ import annotations

import ctypes
import functools
import threading
from pathlib import Path

from opbridge.errors import BuildError, InputError
from opbridge.kernels.compiler import HEADERS, build
from opbridge.kernels.library import KernelLibrary
from opbridge.kernels.toolchain import find_compiler

__all__ = ["attach", "build_adapter", "detach"]

_ERROR_SIZE = 4096
_lock = threading.RLock()
_attached: dict[str, int] = {}


def attach(operator_name: str, library_path: Path, kernel_operator: str | None = None) -> None:
    """Make a kernel the CPU implementation of a torch operator, replacing an earlier kernel.

    The first call on a machine compiles the adapter against the installed torch, which takes some seconds.

    Args:
        operator_name: The torch operator, ``"mylib::my_add"``. Its arguments and the kernel's are matched by name.
        library_path: The compiled library of kernels.
        kernel_operator: The kernel's name in the library, if it is not ``operator_name``.

    Raises:
        InputError: There is no such operator or kernel, the library was not built by opbridge, or the kernel's
            arguments differ from the operator's.
        BuildError: There is no compiler, or the adapter does not compile.
    """
    kernel = kernel_operator or operator_name
    library = KernelLibrary(library_path)
    library.operator(kernel)
    table = ctypes.CDLL(str(library.path.absolute())).opbridge_get_library
    table.restype = ctypes.c_void_p
    adapter = _adapter()
    problem = ctypes.create_string_buffer(_ERROR_SIZE)
    with _lock:
        attachment = adapter.opbridge_torch_attach(
            operator_name.encode(), table(), kernel.encode(), _attached.get(operator_name), problem, _ERROR_SIZE
        )
        if attachment is None:
            raise InputError(
                f"The kernel {kernel} of {library_path.name} can't serve the torch operator {operator_name}: "
                f"{problem.value.decode(errors='replace')}.",
                fix="give the kernel's schema and the Python function the same arguments, in name and type, and the "
                "same number of results.",
            )
        _attached[operator_name] = attachment


def detach(operator_name: str) -> None:
    """Restore the operator's Python function as its CPU implementation; does nothing if no kernel is attached."""
    with _lock:
        attachment = _attached.pop(operator_name, None)
        if attachment is not None:
            _adapter().opbridge_torch_detach(attachment)


@functools.cache
def _adapter() -> ctypes.CDLL:
    """The adapter for this process's torch, compiled if it is not in the cache."""
    adapter = ctypes.CDLL(str(build_adapter()))
    adapter.opbridge_torch_attach.restype = ctypes.c_void_p
    adapter.opbridge_torch_attach.argtypes = [
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    adapter.opbridge_torch_detach.restype = None
    adapter.opbridge_torch_detach.argtypes = [ctypes.c_void_p]
    return adapter


def build_adapter(*, sanitize: bool = False) -> Path:
    """Compile the adapter against the installed torch, once per version of torch.

    Args:
        sanitize: Use the sanitizers, as in :func:`opbridge.kernels.compiler.build`.

    Raises:
        BuildError: There is no compiler, or the adapter does not compile.
    """
    import torch

    root = Path(torch.__file__).parent
    find_compiler()
    try:
        return build(
            [HEADERS / "torch_adapter.cc"],
            sanitize=sanitize,
            extra_compile_flags=[
                "-std=c++20",
                f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
                # Torch's headers are not hashed, so the flags must include its version.
                f'-DOPBRIDGE_TORCH_VERSION="{torch.__version__}"',
                *(f"-isystem{root / folder}" for folder in ("include", "include/torch/csrc/api/include")),
            ],
            extra_link_flags=[f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", "-ltorch_cpu", "-lc10"],
        )
    except BuildError as error:
        raise BuildError(
            f"PyTorch's adapter for kernels does not compile against torch {torch.__version__}:\n{error.message}",
            fix="use a newer compiler (it must know C++20), or leave the operator to its Python function in PyTorch.",
            details=error.details,
        ) from error
