"""Which kernels the user has declared, and for which operators."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from opbridge.errors import InputError

__all__ = ["KernelSpec", "declare_kernel", "declared_kernels", "kernel_for"]


@dataclasses.dataclass(frozen=True)
class KernelSpec:
    """A kernel and the operator it is for.

    Attributes:
        target: ``"domain::name"``: the ONNX node and, where there is one, the torch operator of this name.
        header: The kernel's file.
        native: Whether it is compiled for this machine's processor only.
        source: ``file:line`` of the declaration.
    """

    target: str
    header: Path
    native: bool
    source: str


_declared: dict[str, KernelSpec] = {}


def declared_kernels() -> tuple[KernelSpec, ...]:
    """The kernels declared so far in this process."""
    return tuple(_declared.values())


def kernel_for(target: str, header: str | Path, *, native: bool = False) -> None:
    """Give a node of a custom domain a compiled kernel, so that it runs fast in every engine (rung ``kernel``).

    Args:
        target: ``"domain::Op"`` of the node, whoever made it.
        header: The kernel's C++ file, relative to the file that calls this. See ``opbridge.h``.
        native: Use all instructions of this machine's processor; the library may then not run on another.

    Raises:
        InputError: The file is missing, the target malformed, or another file declares a kernel for it.
    """
    caller = sys._getframe(1)
    declare_kernel(
        target, header, Path(caller.f_code.co_filename), f"{caller.f_code.co_filename}:{caller.f_lineno}", native
    )


def declare_kernel(target: str, header: str | Path, beside: Path, source: str, native: bool = False) -> KernelSpec:
    """Record a kernel; ``header`` is relative to the folder of ``beside``. See :func:`kernel_for`."""
    domain, separator, name = target.partition("::")
    if not separator or not domain or not name:
        raise InputError(
            f"kernel_for({target!r}): a kernel is for a node 'domain::Op'.",
            fix="write for example kernel_for('mylib::MyOp', 'my_op.h').",
        )
    file = (beside.parent / header).resolve()
    if not file.is_file():
        raise InputError(
            f"kernel_for({target!r}) at {source}: there is no file {str(header)!r} in {beside.parent}.",
            fix=f"write the kernel there (opbridge new-op {target} --kernel makes one), or correct its path.",
        )
    earlier = _declared.get(target)
    if earlier is not None and earlier.header != file:
        raise InputError(
            f"{target!r} has two kernels: {earlier.header.name} ({earlier.source}) and {file.name} ({source}).",
            fix="remove one of the two declarations.",
        )
    _declared[target] = KernelSpec(target, file, native, source)
    return _declared[target]
