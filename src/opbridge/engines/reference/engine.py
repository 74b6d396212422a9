"""The onnx package's ReferenceEvaluator: slow, but it computes what the standard says, in any element type.

So a model in float64 can run on it, which is what verification uses it for.
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
        {"without Python": "is written in Python", "node times": "does not tell what each of its nodes costs"}
    )

    def __init__(self) -> None:
        self._answers: dict[Any, Reason | None] = {}

    @property
    def version(self) -> str:
        """The version of the onnx package. Raises EngineNotInstalledError when there is none."""
        try:
            import onnx
            import onnx.reference
        except ModuleNotFoundError as error:
            fix = 'pip install "opbridge[reference]"'
            raise EngineNotInstalledError("onnx is not installed.", fix=fix) from error
        return str(onnx.__version__)

    @functools.cached_property
    def newest_opset(self) -> int:  # type: ignore[override]
        """The newest version of the standard domain that the package knows."""
        import onnx

        return int(onnx.defs.onnx_opset_version())

    @property
    def takes_functions(self) -> bool:
        """It does not tell the overloads of a function from each other."""
        return False

    @property
    def takes_kernels(self) -> bool:
        """It calls them through ctypes."""
        return True

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """Whether it has an implementation of the operator at this opset; element types it does not mind.

        Args:
            node: The node.
            opset_imports: The model's domain versions.

        Returns:
            None when the engine takes it, otherwise the reason.
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
            path: An ONNX model; its external data is found beside it.
            threads: Threads of a kernel; the evaluator itself has one.
            providers: It has none to choose from.
            libraries: Libraries of kernels.

        Raises:
            InputError: The file is missing, truncated or no ONNX, or an option or a library is wrong.
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
