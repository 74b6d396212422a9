"""ExecuTorch's portable runtime on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from opbridge.engines.base import Engine, Refusal, Session
from opbridge.engines.executorch import native

if TYPE_CHECKING:
    import torch

    from opbridge.engines.executorch.support import CallSupport
    from opbridge.torch_program import TorchProgram

__all__ = ["ExecuTorchEngine"]


class ExecuTorchEngine(Engine):
    """ExecuTorch with its portable kernels. Its Python runtime runs on torch's tensors, so torch is needed there.

    A program's memory is planned before it runs: a dynamic dimension without a largest size gets one, see
    :data:`~opbridge.engines.executorch.conversion.LARGEST`.
    """

    name: str = "executorch"
    package: ClassVar[str] = "executorch"
    accepts: ClassVar[str] = "exported_program"
    limits: Mapping[str, str] = {
        **dict.fromkeys(
            (
                "kernels",
                "kernel attributes",
                "several outputs",
                "optional inputs",
                "float64",
                "int64",
                "without Python",
            ),
            "executorch takes no kernels of opbridge's|has no kernel for",
        ),
        "deform_conv2d": "has no kernel for torchvision::deform_conv2d",
    }

    @property
    def version(self) -> str:
        """The installed version. Raises EngineNotInstalledError when there is none."""
        return native.package_version()

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
            libraries: It takes none.

        Raises:
            InputError: A file is missing, or an option is given that there is none of.
            EngineError: The runtime refuses the file; the message is its own.
        """
        from opbridge.engines.executorch.session import load_session

        return load_session(Path(path), threads=threads, providers=providers, libraries=libraries)
