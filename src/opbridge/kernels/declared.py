"""The kernels that the user has declared, and their operators."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from opbridge.errors import InputError
from opbridge.kernels.python_kernel import PythonKernel

__all__ = ["KernelSpec", "declare_kernel", "declare_python_kernel", "declared_kernels", "kernel_for"]


@dataclasses.dataclass(frozen=True)
class KernelSpec:
    """A kernel and the operator it is for.

    Attributes:
        target: ``"domain::name"``: the ONNX node, and the torch operator of this name if there is one.
        file: The author's file.
        native: Whether the kernel is compiled for this machine's processor only.
        source: ``file:line`` of the declaration.
        python: The kernel, if it is written in Python.
    """

    target: str
    file: Path
    native: bool
    source: str
    python: PythonKernel | None = None

    @property
    def header(self) -> Path:
        """The kernel's C++ file; for a kernel in Python, the file that Numba's output is written to.

        Raises:
            BuildError: Numba is missing, or can't compile the kernel.
        """
        return self.file if self.python is None else self.python.write(native=self.native)

    @property
    def is_own(self) -> bool:
        """Whether this is opbridge's own kernel; one that the user declares for the same operator replaces it."""
        return self.file.is_relative_to(Path(__file__).resolve().parents[1])


_declared: dict[str, KernelSpec] = {}


def declared_kernels() -> tuple[KernelSpec, ...]:
    """The kernels declared so far in this process."""
    return tuple(_declared.values())


def kernel_for(target: str, header: str | Path, *, native: bool = False) -> None:
    """Give a node of a custom domain a compiled kernel, so that it runs fast in every engine (rung ``kernel``).

    Args:
        target: ``"domain::Op"`` of the node.
        header: The kernel's C++ file, relative to the file that calls this. See ``opbridge.h``.
        native: Use all instructions of this machine's processor; the library may then not run on another.

    Raises:
        InputError: The file is missing, the target malformed, or another file declares a kernel for it.
    """
    caller = sys._getframe(1)
    declare_kernel(
        target, header, Path(caller.f_code.co_filename), f"{caller.f_code.co_filename}:{caller.f_lineno}", native
    )


def declare_kernel(
    target: str, header: str | Path, declaring_file: Path, source: str, native: bool = False
) -> KernelSpec:
    """Record a kernel; ``header`` is relative to the folder of ``declaring_file``. See :func:`kernel_for`."""
    domain, separator, name = target.partition("::")
    if not separator or not domain or not name:
        raise InputError(
            f"kernel_for({target!r}): a kernel is for a node 'domain::Op'.",
            fix="write, for example, kernel_for('mylib::MyOp', 'my_op.h').",
        )
    file = (declaring_file.parent / header).resolve()
    if not file.is_file():
        raise InputError(
            f"kernel_for({target!r}) at {source}: there is no file {str(header)!r} in {declaring_file.parent}.",
            fix=f"write the kernel there (opbridge new-op {target} --kernel makes one), or correct its path.",
        )
    return _declare(KernelSpec(target, file, native, source))


def declare_python_kernel(kernel: PythonKernel, source: str, native: bool = False) -> KernelSpec:
    """Record a kernel that is written in Python.

    Raises:
        InputError: Another file declares a kernel for the operator.
    """
    file = Path(kernel.function.__code__.co_filename).resolve()
    return _declare(KernelSpec(kernel.target, file, native, source, kernel))


def _declare(spec: KernelSpec) -> KernelSpec:
    earlier = _declared.get(spec.target)
    if earlier is not None and earlier.file != spec.file and not earlier.is_own:
        if spec.is_own:
            return earlier
        raise InputError(
            f"{spec.target!r} has two kernels: {earlier.file.name} ({earlier.source}) and {spec.file.name} "
            f"({spec.source}).",
            fix="remove one of the two declarations.",
        )
    _declared[spec.target] = spec
    return spec
