"""ExecuTorch's portable runtime on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from opbridge.engines.base import AdapterFlags, Refusal, Session
from opbridge.engines.executorch import native
from opbridge.engines.roles import TakesTorchPrograms

if TYPE_CHECKING:
    import torch

    from opbridge.engines.executorch.support import CallSupport
    from opbridge.engines.torch_program import TorchProgram

__all__ = ["ExecuTorchEngine"]

# The package's CMake targets need CMake 3.28; these variables work with every version.
_CMAKE = """target_include_directories({target} SYSTEM PRIVATE ${EXECUTORCH_INCLUDE_DIRS})
target_compile_definitions({target} PRIVATE ${EXECUTORCH_COMPILE_DEFINITIONS})
target_link_libraries({target} PRIVATE ${EXECUTORCH_RUNTIME_LIBRARY_DIR}/libexecutorch.so)
"""


class ExecuTorchEngine(TakesTorchPrograms):
    """ExecuTorch with its portable kernels. Its Python runtime works on torch tensors, so it needs torch.

    A program's memory is planned ahead of time: a dynamic dimension without an upper bound gets one, see
    :data:`~opbridge.engines.executorch.conversion.LARGEST`.
    """

    name: str = "executorch"
    package: ClassVar[str] = "executorch"
    limits: Mapping[str, str] = {
        "node times": "does not measure the time of each node",
    }

    @property
    def version(self) -> str:
        """The installed version. Raises EngineNotInstalledError if the package is missing."""
        return native.package_version()

    @property
    def kernel_adapter(self) -> Path:
        """The C++ file that registers kernels in ExecuTorch's runtime."""
        return Path(__file__).with_name("adapter.cc")

    @property
    def adapter_flags(self) -> AdapterFlags:
        """ExecuTorch's headers and library, from its wheel. A library works with this release of ExecuTorch only."""
        place = native.folder()
        # Loading the built library, to describe it, needs the runtime's library.
        native.runtime()
        headers = (place / "include", place / "include" / "executorch" / "runtime" / "core" / "portable_type" / "c10")
        return AdapterFlags(
            compile=(
                *(f"-isystem{folder}" for folder in headers),
                "-DC10_USING_CUSTOM_GENERATED_MACROS",
                f'-DOPBRIDGE_EXECUTORCH_VERSION="{self.version}"',
            ),
            link=(f"-L{place / 'lib'}", "-lexecutorch"),
            cmake_package=("executorch", "executorch"),
            cmake=_CMAKE,
        )

    @functools.cached_property
    def _support(self) -> CallSupport:
        from opbridge.engines.executorch.support import CallSupport

        return CallSupport(self.version)

    def supports_call(self, node: torch.fx.Node) -> Refusal | None:
        """Ask whether the runtime has the kernels of the operators into which ``to_edge`` decomposes this call."""
        return self._support.ask(node)

    def convert(self, program: TorchProgram, folder: Path) -> str:
        """Write ``model.executorch.pte`` and a description of its inputs and outputs; see the base class."""
        from opbridge.engines.executorch.conversion import write_program

        return write_program(program, folder, self.version)

    def machine_code(self, path: Path) -> tuple[Path, ...]:
        """The program: the runtime does not check the instructions in it."""
        return (path,)

    def load(
        self,
        path: Path,
        *,
        threads: int | None = None,
        providers: Sequence[str] | None = None,
        libraries: Sequence[Path] = (),
    ) -> Session:
        """Load a program file.

        Args:
            path: The ``.pte`` file; the description of its inputs and outputs is in the same folder.
            threads: Ignored; the portable kernels use one thread.
            providers: Not supported; must be None.
            libraries: Libraries of kernels, built with ExecuTorch's adapter.

        Raises:
            InputError: A file is missing, or an option is not supported.
            EngineError: The runtime refuses the file; the message is the runtime's.
        """
        from opbridge.engines.executorch.session import load_session

        return load_session(Path(path), threads=threads, providers=providers, libraries=libraries)
