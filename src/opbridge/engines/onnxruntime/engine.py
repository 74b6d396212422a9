"""ONNX Runtime: the installed package, or another version in an environment of its own."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from opbridge.engines.base import Refusal, Session
from opbridge.engines.onnxruntime.builds import Build, InstalledBuild, IsolatedBuild, OtherBuild
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.engines.profiling import NodeTime, profile_isolated
from opbridge.engines.roles import InEnvironments, Profiles

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.engines.environments import EngineEnvironment
    from opbridge.engines.onnxruntime.support import KernelSupport

__all__ = ["OnnxRuntimeEngine"]


class OnnxRuntimeEngine(InEnvironments, Profiles):
    """ONNX Runtime on the CPU, unless :meth:`load` gets other execution providers.

    Args:
        environment: The environment of another version; by default the engine is the one that this process imports.
    """

    name: str = "onnxruntime"
    package: ClassVar[str] = "onnxruntime"
    is_reference: ClassVar[bool] = True
    joins_elementwise: ClassVar[bool] = False

    def __init__(self, environment: EngineEnvironment | None = None) -> None:
        self._build: Build = IsolatedBuild() if environment is None else OtherBuild(environment)
        if environment is not None:
            self.name = f"onnxruntime=={environment.version}"
            self.python = environment.python

    @classmethod
    def in_environment(cls, environment: EngineEnvironment) -> OnnxRuntimeEngine:
        """Another version of ONNX Runtime; each question and each model goes to a child process of its environment."""
        return cls(environment)

    @property
    def version(self) -> str:
        """The version. Raises EngineNotInstalledError if the package is missing."""
        return self._build.version

    @functools.cached_property
    def newest_opset(self) -> int:  # type: ignore[override]
        """The newest opset that a model may import.

        A build also lists operators of an opset under development, but refuses models of it; so a model is tried.
        """
        return next((n for n in range(_NEWEST_THOUGHT_OF, 0, -1) if self._takes(ir_version=_OLDEST_IR, opset=n)), 1)

    @property
    def served_opset(self) -> int:
        """The newest opset of ONNX Runtime 1.20, of November 2024, or of this version if it is older."""
        return min(self.newest_opset, _NEWEST_OF_SERVED)

    @functools.cached_property
    def newest_ir_version(self) -> int:  # type: ignore[override]
        """The newest ONNX IR version of a model that the build takes."""
        versions = range(_NEWEST_THOUGHT_OF, _OLDEST_IR, -1)
        return next((n for n in versions if self._takes(ir_version=n, opset=self.newest_opset)), _OLDEST_IR)

    def _takes(self, *, ir_version: int, opset: int) -> bool:
        """Whether a session takes a model of these versions, written as bytes since the onnx package may be missing."""
        # ir_version is field 1; opset_import is field 8, and its version field 2.
        model = b"\x08" + bytes([ir_version]) + _IDENTITY_GRAPH + b"\x42\x02\x10" + bytes([opset])
        return self._build.refusal_of(model) is None

    @property
    def kernel_adapter(self) -> Path | None:
        """The C++ file that registers kernels as custom operators; it needs the C API of 1.17."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        return Path(__file__).with_name("adapter.cc") if numbers >= _OLDEST_WITH_KERNELS else None

    @property
    def program_sources(self) -> Path:
        """The C++ program for a bundle."""
        return Path(__file__).with_name("program")

    @functools.cached_property
    def _support(self) -> KernelSupport:
        from opbridge.engines.onnxruntime.support import KernelSupport

        return KernelSupport(self._build, self.newest_opset, self.newest_ir_version)

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Ask whether there is a kernel for this node, by a session of the node alone if possible.

        Args:
            node: A node whose inputs carry dtype and, where known, shape. A node with subgraphs is judged by its own
                types only.
            opset_imports: The model's domain versions.

        Returns:
            None if the engine takes the node, otherwise the reason.
        """
        return self._support.ask(node, opset_imports)

    def answer(self, question: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Answer a question of this engine's builds, in a child process."""
        return InstalledBuild().answer(question, arrays)

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
            threads: The number of threads per operator; the engine's default is one per core.
            providers: Execution providers in order of preference; the default is the CPU only.
            libraries: Libraries of kernels, built with this engine's adapter. Each domain is in one library.

        Raises:
            InputError: The file is missing, truncated or not ONNX, or an option or a library is wrong.
            EngineError: The engine refuses the model or a library; the message is the engine's.
        """
        if self.python is not None:
            return IsolatedSession(self.name, path, threads, providers=providers, libraries=libraries)
        from opbridge.engines.onnxruntime.session import load_session

        return load_session(Path(path), threads=threads, providers=providers, libraries=libraries)

    def profile(
        self, path: Path, feeds: Mapping[str, np.ndarray], *, libraries: Sequence[Path] = (), runs: int = 7
    ) -> tuple[NodeTime, ...]:
        """The median time of each node, from ONNX Runtime's profiler."""
        if self.python is not None:
            return profile_isolated(self.name, path, feeds, libraries=libraries, runs=runs)
        from opbridge.engines.onnxruntime.profile import profile_model

        return profile_model(Path(path), feeds, libraries=libraries, runs=runs)

    def load_lean(self, path: Path) -> Session:
        """Load a model to run it a few times, without optimizations that would hold the weights twice."""
        if self.python is not None:
            return self.load(path)
        from opbridge.engines.onnxruntime.session import load_session

        return load_session(Path(path), threads=None, providers=None, lean=True)


# The graph (field 7 of ModelProto) of one Identity from x to y.
_IDENTITY_GRAPH = (
    b'\x3a\x2b\x0a\x10\x0a\x01x\x12\x01y"\x08Identity\x12\x01g'
    b"\x5a\x09\x0a\x01x\x12\x04\x0a\x02\x08\x01\x62\x09\x0a\x01y\x12\x04\x0a\x02\x08\x01"
)
_NEWEST_THOUGHT_OF = 60
_NEWEST_OF_SERVED = 21
_OLDEST_IR = 4
_OLDEST_WITH_KERNELS = [1, 17]
