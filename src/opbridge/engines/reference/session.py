"""A model in onnx's reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.engines.base import Session, TensorSpec
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.onnx_specs import check_threads, onnx_specs
from opbridge.errors import EngineError, InputError, OpbridgeError
from opbridge.kernels.dtypes import numpy_dtype
from opbridge.kernels.library import KernelLibrary, KernelOperator

__all__ = ["EvaluatorSession", "load_session"]


def load_session(
    path: Path, *, threads: int | None, providers: Sequence[str] | None, libraries: Sequence[Path]
) -> EvaluatorSession:
    """See :meth:`ReferenceEngine.load <opbridge.engines.reference.engine.ReferenceEngine.load>`."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    check_threads(threads)
    if providers is not None:
        raise InputError("onnx's reference evaluator has no execution providers.", fix="leave providers out.")
    inputs, outputs = onnx_specs(path)
    opened = [KernelLibrary(Path(library)) for library in libraries]
    classes = [_kernel_class(library, operator, threads or 1) for library in opened for operator in library.operators]
    try:
        evaluator = ReferenceEvaluator(onnx.load(path), new_ops=classes)
    except Exception as error:
        raise EngineError(
            f"onnx's reference evaluator refuses {path.name!r}: {type(error).__name__}: {_one_line(error)}",
            fix="run `opbridge diagnose` on the model to see what it does not support.",
            details=str(error),
        ) from error
    return EvaluatorSession(evaluator, inputs, outputs)


def _kernel_class(library: KernelLibrary, operator: KernelOperator, threads: int) -> Any:
    """A kernel as an operator class for the evaluator."""
    from onnx.reference.op_run import OpRun

    def run(self: Any, *arrays: np.ndarray | None, **unused: Any) -> tuple[np.ndarray, ...]:
        node = self.onnx_node
        count = len(node.output) if operator.outputs[-1].variadic else None
        attributes = _attributes(node, operator)
        results = library.run(operator.target, arrays, attributes, output_count=count, threads=threads)
        return results[: len(node.output)]

    return type(operator.name, (OpRun,), {"op_domain": operator.domain, "_run": run})


def _attributes(node: Any, operator: KernelOperator) -> dict[str, Any]:
    import onnx

    kinds = {attribute.name: attribute.kind for attribute in operator.attributes}
    values = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: _value(value, kinds[name]) for name, value in values.items() if name in kinds}


def _value(value: Any, kind: str) -> Any:
    """An attribute's value for a kernel's call; a list of strings may have become a tensor."""
    import onnx

    if isinstance(value, onnx.TensorProto):
        array = onnx.numpy_helper.to_array(value)
        return [_text(item) for item in array.reshape(-1)] if kind == "strings" else array
    if isinstance(value, list):
        return [_text(item) for item in value] if kind == "strings" else value
    return _text(value) if kind == "string" else value


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


class EvaluatorSession(Session):
    """A model in the evaluator."""

    def __init__(self, evaluator: Any, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._evaluator = evaluator

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once; see :meth:`opbridge.engines.base.Session.run`."""
        arrays = checked_feeds(self.inputs, feeds)
        names = [spec.name for spec in self.outputs]
        try:
            with np.errstate(all="ignore"):
                results = self._evaluator.run(names, arrays)
        except OpbridgeError as error:
            raise EngineError(
                f"onnx's reference evaluator failed: {error.message}", fix=error.fix, details=error.details
            ) from error
        except Exception as error:
            raise EngineError(
                f"onnx's reference evaluator failed: {type(error).__name__}: {_one_line(error)}",
                fix="check that the inputs' sizes and values are ones that the model takes.",
                details=str(error),
            ) from error
        return {
            spec.name: np.asarray(value, dtype=numpy_dtype(spec.dtype) if spec.dtype == "str" else None)
            for spec, value in zip(self.outputs, results, strict=True)
        }
