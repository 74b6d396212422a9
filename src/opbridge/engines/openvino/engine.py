"""OpenVINO: the installed package."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from opbridge.engines.base import AdapterFlags, Refusal, Session
from opbridge.engines.openvino import native
from opbridge.engines.profiling import NodeTime
from opbridge.engines.roles import AnswersQuestions, Profiles

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.engines.openvino.support import OpenVinoSupport

__all__ = ["OpenVinoEngine"]


class OpenVinoEngine(AnswersQuestions, Profiles):
    """OpenVINO on the CPU, unless :meth:`load` gets other devices; there, float32 is computed in float32.

    OpenVINO computes float64 in float32, so a float64 node is refused.
    """

    name: str = "openvino"
    package: ClassVar[str] = "openvino"

    @property
    def version(self) -> str:
        """The version. Raises EngineNotInstalledError if the package is missing."""
        return native.version()

    @property
    def newest_opset(self) -> int:
        """The newest version of the standard domain whose schemas the frontend has."""
        return native.newest_opset()

    @property
    def takes_functions(self) -> bool:
        """False: the frontend has no conversion rule for a node that a model-local function defines."""
        return False

    @property
    def kernel_adapter(self) -> Path:
        """The C++ file that registers kernels as operators of OpenVINO."""
        return Path(__file__).with_name("adapter.cc")

    @property
    def program_sources(self) -> Path:
        """The C++ program for a bundle."""
        return Path(__file__).with_name("program")

    def cannot_hold(self, dtype: str, shape: Sequence[int]) -> str | None:
        """Float64, unless the device computes in it."""
        return self._support.loses(dtype)

    @property
    def adapter_flags(self) -> AdapterFlags:
        """OpenVINO's headers and libraries, from its wheel. A library works with this release of OpenVINO only."""
        place = native.folder()
        patterns = ("libopenvino.so.*", "libtbb.so.*")
        names = [f"-l:{file.name}" for pattern in patterns for file in sorted((place / "libs").glob(pattern))[:1]]
        return AdapterFlags(
            compile=(f"-isystem{place / 'include'}", f'-DOPBRIDGE_OPENVINO_VERSION="{self.version}"'),
            link=(f"-L{place / 'libs'}", *names),
            cmake_package=("OpenVINO", "openvino"),
            cmake=_CMAKE,
        )

    @functools.cached_property
    def _support(self) -> OpenVinoSupport:
        from opbridge.engines.openvino.support import OpenVinoSupport

        return OpenVinoSupport(self.version, self.newest_opset)

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Ask whether the frontend converts a model of this node alone, and whether the CPU plugin takes the result.

        Args:
            node: A node whose inputs carry dtype and, where known, shape.
            opset_imports: The model's domain versions.

        Returns:
            None if the engine takes the node, otherwise the reason.
        """
        return self._support.ask(node, opset_imports)

    def answer(self, question: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Answer the question of :meth:`supports`, in a child process."""
        from opbridge.engines.openvino.questions import answer

        return answer(question, arrays)

    def load(
        self,
        path: Path,
        *,
        threads: int | None = None,
        providers: Sequence[str] | None = None,
        libraries: Sequence[Path] = (),
    ) -> Session:
        """Load a model file.

        Args:
            path: An ONNX model; external data is in the same folder.
            threads: The number of threads of a run; the engine's default is one per core.
            providers: Names of OpenVINO devices in order of preference; the default is the CPU.
            libraries: Libraries of kernels, built with this engine's adapter.

        Raises:
            InputError: The file is missing, truncated or not ONNX, or an option or a library is wrong.
            EngineError: The engine refuses the model or a library; the message is the engine's.
        """
        from opbridge.engines.openvino.session import load_session

        return load_session(Path(path), threads=threads, devices=providers, libraries=libraries)

    def profile(
        self, path: Path, feeds: Mapping[str, np.ndarray], *, libraries: Sequence[Path] = (), runs: int = 7
    ) -> tuple[NodeTime, ...]:
        """The mean time of each node, from OpenVINO's performance counters."""
        from opbridge.engines.openvino.profile import profile_model

        return profile_model(Path(path), feeds, libraries=libraries, runs=runs)


# The adapter calls TBB itself if its headers are there, as in the Python package.
_CMAKE = """\
target_link_libraries({target} PRIVATE openvino::runtime)
find_package(TBB QUIET HINTS "${OpenVINO_DIR}")
if(TARGET TBB::tbb)
  target_link_libraries({target} PRIVATE TBB::tbb)
endif()
"""
