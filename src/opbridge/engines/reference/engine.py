"""The onnx package's ReferenceEvaluator: slow, but it implements the standard for every element type.

Verification uses it to run models in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from opbridge.engines.base import Engine, Refusal, Session
from opbridge.engines.question import Question
from opbridge.engines.refusals import UNKNOWN, Reason, refusal_of, version_problem
from opbridge.errors import EngineNotInstalledError

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["ReferenceEngine"]


class ReferenceEngine(Engine):
    """The evaluator. Kernels are called through ctypes, in the plain library of kernels."""

    name: str = "reference"
    package: ClassVar[str] = "onnx"
    limits: Mapping[str, str] = MappingProxyType(
        {"without Python": "is written in Python", "node times": "does not measure the time of each node"}
    )

    def __init__(self) -> None:
        self._answers: dict[Any, Reason | None] = {}

    @property
    def version(self) -> str:
        """The version of the onnx package. Raises EngineNotInstalledError if it is missing."""
        try:
            import onnx
            import onnx.reference
        except ModuleNotFoundError as error:
            fix = "pip install --upgrade onnx"
            raise EngineNotInstalledError("onnx is not installed.", fix=fix) from error
        return str(onnx.__version__)

    @functools.cached_property
    def newest_opset(self) -> int:  # type: ignore[override]
        """The newest version of the standard domain that the package knows."""
        import onnx

        return int(onnx.defs.onnx_opset_version())

    @property
    def takes_functions(self) -> bool:
        """False: the evaluator does not distinguish the overloads of a function."""
        return False

    @property
    def takes_kernels(self) -> bool:
        """True: kernels are called through ctypes."""
        return True

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Ask whether there is an implementation of the operator at this opset, for any element type.

        Args:
            node: The node.
            opset_imports: The model's domain versions.

        Returns:
            None if the engine takes the node, otherwise the reason.
        """
        question = Question(node, opset_imports)
        key = (question.domain, question.op_type, question.opset)
        if key not in self._answers:
            engine = f"onnx {self.version}"
            problem = None if key[0] else version_problem(engine, self.newest_opset, question.op_type, question.opset)
            self._answers[key] = problem or _missing(*key)
        return refusal_of(node, self._answers[key])

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
            threads: The number of threads of a kernel; the evaluator itself uses one.
            providers: Not supported; must be None.
            libraries: Libraries of kernels.

        Raises:
            InputError: The file is missing, truncated or not ONNX, or an option or a library is wrong.
            EngineError: The evaluator refuses the model.
        """
        from opbridge.engines.reference.session import load_session

        return load_session(Path(path), threads=threads, providers=providers, libraries=libraries)


def _missing(domain: str, op_type: str, opset: int) -> Reason | None:
    """None if there is an implementation of the operator."""
    from onnx.reference.ops import load_op

    try:
        load_op(domain, op_type, opset)
    except Exception:
        return UNKNOWN
    return None
