"""A kernel as the CPU implementation of its PyTorch operator.

The kernel takes the calls on CPU tensors whose element types and ranks it covers. The operator's Python function keeps
everything else: other devices, other types, gradients (it is differentiated), shapes (it runs on fake tensors).
"""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

from opbridge.errors import InputError

__all__ = ["attach", "detach"]

_ERROR_SIZE = 4096
_lock = threading.RLock()
_attached: dict[str, int] = {}
_loaded: list[ctypes.CDLL] = []


def attach(operator_name: str, library_path: Path, kernel_operator: str | None = None) -> None:
    """Make a kernel the CPU implementation of a torch operator, in place of an earlier kernel if there is one.

    The first call on a machine compiles the adapter against the installed torch, which takes some seconds.

    Args:
        operator_name: The torch operator, ``"mylib::my_add"``. Its arguments and the kernel's are matched by name.
        library_path: The compiled library of kernels.
        kernel_operator: The kernel's name in the library, if it is not ``operator_name``.

    Raises:
        InputError: There is no such operator or kernel, the library is not opbridge's, or the kernel's arguments are
            not those of the operator.
        BuildError: There is no compiler, or the adapter does not compile.
    """
    kernel = kernel_operator or operator_name
    table = _table(library_path)
    adapter = _adapter()
    problem = ctypes.create_string_buffer(_ERROR_SIZE)
    with _lock:
        detach(operator_name)
        attachment = adapter.opbridge_torch_attach(
            operator_name.encode(), table, kernel.encode(), problem, _ERROR_SIZE
        )
        if attachment is None:
            raise InputError(
                f"The kernel {kernel} of {library_path.name} can't serve the torch operator {operator_name}: "
                f"{problem.value.decode(errors='replace')}.",
                fix="give the kernel's schema and the Python function the same arguments, in name and type, and the same "
                "number of results.",
            )
        _attached[operator_name] = attachment


def detach(operator_name: str) -> None:
    """Give the torch operator back to its Python function; nothing if no kernel is attached."""
    with _lock:
        attachment = _attached.pop(operator_name, None)
        if attachment is not None:
            _adapter().opbridge_torch_detach(attachment)


def _table(path):
    library = ctypes.CDLL(str(path)); _loaded.append(library)
    library.opbridge_get_library.restype = ctypes.c_void_p
    return library.opbridge_get_library()


def _adapter():
    import torch, subprocess
    if not hasattr(_adapter, "x"):
        p = torch.__path__[0]; here = str(Path(__file__).parent)
        so = "/tmp/k2/adapter_%s.so" % torch.__version__
        subprocess.check_call(["g++","-std=c++20","-O2","-fPIC","-shared","-fvisibility=hidden",here+"/torch_adapter.cc","-I",here,"-isystem",p+"/include","-isystem",p+"/include/torch/csrc/api/include","-L"+p+"/lib","-lc10","-ltorch_cpu","-o",so])
        a = _adapter.x = ctypes.CDLL(so)
        a.opbridge_torch_attach.restype=ctypes.c_void_p
        a.opbridge_torch_attach.argtypes=[ctypes.c_char_p,ctypes.c_void_p,ctypes.c_char_p,ctypes.c_char_p,ctypes.c_size_t]
        a.opbridge_torch_detach.restype=None
        a.opbridge_torch_detach.argtypes=[ctypes.c_void_p]
    return _adapter.x
