"""ONNX Runtime, as the installed package answers for it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from opbridge.engines.base import Engine, Refusal, Session
from opbridge.engines.onnxruntime import native

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.engines.onnxruntime.support import KernelSupport

__all__ = ["OnnxRuntimeEngine"]


class OnnxRuntimeEngine(Engine):
    """ONNX Runtime on the CPU, unless :meth:`load` is told other execution providers."""

    name: ClassVar[str] = "onnxruntime"
    package: ClassVar[str] = "onnxruntime"

    @property
    def version(self) -> str:
        """The installed version. Raises EngineNotInstalledError when there is none."""
        return str(native.runtime().__version__)

    @functools.cached_property
    def newest_opset(self) -> int:  # type: ignore[override]
        """The newest version of the standard domain that models may be stamped with.

        The build knows operators of a version still under development too, but refuses models of it: so it is asked.
        """
        newest = max(schema.since_version for schema in native.operator_schemas() if not schema.domain)
        return next((opset for opset in range(newest, 0, -1) if _takes_opset(opset)), newest)

    @property
    def kernel_adapter(self) -> Path:
        """The C++ file that registers kernels as custom operators."""
        return Path(__file__).with_name("adapter.cc")

    @functools.cached_property
    def _support(self) -> KernelSupport:
        from opbridge.engines.onnxruntime.support import KernelSupport

        return KernelSupport(self.version, self.newest_opset)

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Whether it has a kernel for this node: by creating a session of the node alone, where that is possible.

        Args:
            node: A node whose inputs carry dtype and, where known, shape. Of a node with subgraphs only its own types
                are judged.
            opset_imports: The model's domain versions.

        Returns:
            None when the engine takes it, otherwise the reason.
        """
        return self._support.ask(node, opset_imports)

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
            path: An ONNX model; its external data is found beside it.
            threads: Threads per operator; the engine's default is one per core.
            providers: Execution providers in order of preference; the default is the CPU's alone.
            libraries: Libraries of kernels, built with this engine's adapter. One domain is in one library.

        Raises:
            InputError: The file is missing, truncated or no ONNX, or an option or a library is wrong.
            EngineError: The engine refuses the model or a library; the message is the engine's.
        """
        from opbridge.engines.onnxruntime.session import load_session

        return load_session(Path(path), threads=threads, providers=providers, libraries=libraries)


# A ModelProto without its opset_import: ir_version (field 1) 8, and a graph (field 7) that is one Identity from x to y.
_IDENTITY_MODEL = (
    b"\x08\x08"
    b'\x3a\x2b\x0a\x10\x0a\x01x\x12\x01y"\x08Identity\x12\x01g'
    b"\x5a\x09\x0a\x01x\x12\x04\x0a\x02\x08\x01\x62\x09\x0a\x01y\x12\x04\x0a\x02\x08\x01"
)


def _takes_opset(opset: int) -> bool:
    """Whether a session takes a model of this opset. It is given as bytes, since the onnx package may be missing."""
    onnxruntime = native.runtime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        # opset_import is field 8, and its version field 2.
        onnxruntime.InferenceSession(
            _IDENTITY_MODEL + b"\x42\x02\x10" + bytes([opset]), options, providers=["CPUExecutionProvider"]
        )
    except Exception:
        # The binding has one exception class per status code, without a common base of its own.
        return False
    return True
