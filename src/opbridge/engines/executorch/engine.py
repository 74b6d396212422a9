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

# The package has targets for CMake from 3.28 on, and these variables for every one.
_CMAKE = """find_package(executorch REQUIRED)
target_include_directories({target} SYSTEM PRIVATE ${EXECUTORCH_INCLUDE_DIRS})
target_compile_definitions({target} PRIVATE ${EXECUTORCH_COMPILE_DEFINITIONS})
target_link_libraries({target} PRIVATE ${EXECUTORCH_RUNTIME_LIBRARY_DIR}/libexecutorch.so)
"""


class ExecuTorchEngine(TakesTorchPrograms):
    """ExecuTorch with its portable kernels. Its Python runtime runs on torch's tensors, so torch is needed there.

    A program's memory is planned before it runs: a dynamic dimension without a largest size gets one, see
    :data:`~opbridge.engines.executorch.conversion.LARGEST`.
    """

    name: str = "executorch"
    package: ClassVar[str] = "executorch"
    limits: Mapping[str, str] = {
        "node times": "does not tell what each of its nodes costs",
    }

    @property
    def version(self) -> str:
        """The installed version. Raises EngineNotInstalledError when there is none."""
        return native.package_version()

    @property
    def kernel_adapter(self) -> Path:
        """The C++ file that registers kernels in ExecuTorch's runtime."""
        return Path(__file__).with_name("adapter.cc")

    @property
    def adapter_flags(self) -> AdapterFlags:
        """ExecuTorch's headers and library: the wheel has both. A library is for this release of it alone."""
        place = native.folder()
        # The library that is built is loaded next, to be described, and needs the runtime's.
        native.runtime()
        headers = (place / "include", place / "include" / "executorch" / "runtime" / "core" / "portable_type" / "c10")
        return AdapterFlags(
            compile=(
                *(f"-isystem{folder}" for folder in headers),
                "-DC10_USING_CUSTOM_GENERATED_MACROS",
                f'-DOPBRIDGE_EXECUTORCH_VERSION="{self.version}"',
            ),
            link=(f"-L{place / 'lib'}", "-lexecutorch"),
            cmake=_CMAKE,
        )

    @functools.cached_property
    def _support(self) -> CallSupport:
        from opbridge.engines.executorch.support import CallSupport

        return CallSupport(self.version)

    def supports_call(self, node: torch.fx.Node) -> Refusal | None:
        """Whether the runtime's registry has the kernels of what ``to_edge`` makes of this call."""
        return self._support.ask(node)

    def convert(self, program: TorchProgram, folder: Path) -> str:
        """Write ``model.executorch.pte``, and the inputs and outputs beside it."""
        from opbridge.engines.executorch.conversion import write_program

        return write_program(program, folder, self.version)

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
            path: The ``.pte`` file; the description of its inputs and outputs lies beside it.
            threads: The portable kernels use one thread.
            providers: There are none.
            libraries: Of kernels, with ExecuTorch's adapter.

        Raises:
            InputError: A file is missing, or an option is given that there is none of.
            EngineError: The runtime refuses the file; the message is its own.
        """
        from opbridge.engines.executorch.session import load_session

        return load_session(Path(path), threads=threads, providers=providers, libraries=libraries)
