"""The onnx package's ReferenceEvaluator as an engine: for verification, not for users, since it is slow.

It computes in any floating-point type, so it is what a model in float64 can run on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from opbridge.engines.base import Engine, Refusal, Session, TensorSpec
from opbridge.engines.feeds import checked_feeds
from opbridge.errors import EngineError, EngineNotInstalledError

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["ENGINE"]


class OnnxReferenceEngine(Engine):
    """The evaluator of the onnx package."""

    name: str = "onnx's reference evaluator"
    package: ClassVar[str] = "onnx"

    @property
    def version(self) -> str:
        """The version of the onnx package."""
        try:
            import onnx
        except ModuleNotFoundError as error:
            raise EngineNotInstalledError("onnx is not installed.", fix="pip install onnx") from error
        return str(onnx.__version__)

    @property
    def newest_opset(self) -> int:
        """The newest version of the standard domain that the package knows."""
        import onnx

        return int(onnx.defs.onnx_opset_version())

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """It is not asked node by node: it either runs a model or it does not."""
        return None

    def load(
        self,
        path: Path,
        *,
        threads: int | None = None,
        providers: Sequence[str] | None = None,
        libraries: Sequence[Path] = (),
    ) -> Session:
        """Load a model file; the options are other engines'."""
        import onnx
        from onnx.reference import ReferenceEvaluator

        model = onnx.load(path)
        try:
            return _EvaluatorSession(ReferenceEvaluator(model), model)
        except Exception as error:
            raise EngineError(
                f"onnx's reference evaluator refuses {path.name!r}: {type(error).__name__}: {error}",
                fix="compare with another engine.",
            ) from error


ENGINE = OnnxReferenceEngine


class _EvaluatorSession(Session):
    def __init__(self, evaluator: Any, model: Any) -> None:
        initializers = {tensor.name for tensor in model.graph.initializer}
        self._evaluator = evaluator
        self.inputs = tuple(_spec(value) for value in model.graph.input if value.name not in initializers)
        self.outputs = tuple(_spec(value) for value in model.graph.output)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once; see :meth:`opbridge.engines.base.Session.run`."""
        arrays = checked_feeds(self.inputs, feeds)
        names = [spec.name for spec in self.outputs]
        try:
            with np.errstate(all="ignore"):
                results = self._evaluator.run(names, arrays)
        except Exception as error:
            raise EngineError(
                f"onnx's reference evaluator failed: {type(error).__name__}: {error}", fix="pass other inputs."
            ) from error
        return {name: np.asarray(value) for name, value in zip(names, results, strict=True)}


def _spec(value: Any) -> TensorSpec:
    import onnx

    kind = value.type.tensor_type
    dtype = "str" if kind.elem_type == onnx.TensorProto.STRING else _dtype(kind.elem_type)
    shape = tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}.{axis}"
        for axis, dim in enumerate(kind.shape.dim)
    )
    return TensorSpec(value.name, dtype, shape)


def _dtype(number: int) -> str:
    import onnx

    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(number).name)
    except KeyError:
        return "float32"
