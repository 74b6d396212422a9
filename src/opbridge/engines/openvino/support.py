"""Link 3: whether the installed OpenVINO takes a node.

Two parts of it are asked, with a model of that node alone: the ONNX frontend, whether it has a rule that converts the
node, and the CPU plugin, whether it takes what the node becomes (30 ms, so equal questions are asked once).
"""

from __future__ import annotations

import dataclasses
import functools
import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opbridge.engines.base import IR_VERSION, Refusal
from opbridge.engines.openvino import native
from opbridge.engines.question import Question, bare_model, dtype_of_type, version_problem
from opbridge.engines.refusals import describe_node, describe_operator, unknown_operator

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["OpenVinoSupport"]

_UNKNOWN = re.compile(r"No conversion rule found for operations?")
# They move numbers, and compute nothing.
_MOVING = frozenset({"Cast", "CastLike", "Constant", "Identity"})


@dataclasses.dataclass(frozen=True)
class _Answer:
    """Why a node is refused; without a reason the operator is unknown."""

    reason: str = ""
    missing_dtypes: tuple[str, ...] = ()


class OpenVinoSupport:
    """Answers for the installed version, remembered per distinct question.

    Args:
        version: Its version.
        newest_opset: The newest version of the standard domain that it knows.
    """

    def __init__(self, version: str, newest_opset: int) -> None:
        self._name = f"OpenVINO {version}"
        self._newest_opset = newest_opset
        self._answers: dict[Any, _Answer | None] = {}

    def ask(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """See :meth:`Engine.supports <opbridge.engines.base.Engine.supports>`."""
        question = Question(node, opset_imports)
        if question.key not in self._answers:
            self._answers[question.key] = self._answer(question)
        answer = self._answers[question.key]
        if answer is not None and answer.reason and question.stands_alone:
            # Some operators need sizes, of a weight for one, which a question leaves out at first.
            key = (question.key, question.sizes)
            if key not in self._answers:
                self._answers[key] = self._answer(question, sized=True)
            answer = self._answers[key]
        if answer is None:
            return None
        if not answer.reason:
            return unknown_operator(node)
        operator = describe_operator(node.domain, node.op_type)
        return Refusal(describe_node(node), operator, answer.reason, answer.missing_dtypes)

    @functools.cached_property
    def _core(self) -> Any:
        return native.make_core()

    def _answer(self, question: Question, *, sized: bool = False) -> _Answer | None:
        problem = version_problem(self._name, self._newest_opset, question)
        if problem is not None:
            return _Answer(problem)
        dtypes = tuple(dict.fromkeys(dtype_of_type(name) for name in question.input_types if name))
        if not question.stands_alone:
            imports = {"": self._newest_opset, question.domain: question.opset}
            said = self._conversion(bare_model(question.domain, question.op_type, imports, IR_VERSION))
            return _Answer() if isinstance(said, str) and _UNKNOWN.search(said) else None
        said = self._conversion(question.model_bytes(IR_VERSION, sized=sized))
        if isinstance(said, str):
            return _Answer() if _UNKNOWN.search(said) else _Answer(f"{self._name}: {said}", dtypes)
        taken = self._core.query_model(said, "CPU")
        left = [operation for operation in said.get_ops() if operation.get_friendly_name() not in taken]
        if left:
            names = ", ".join(dict.fromkeys(operation.get_type_name() for operation in left))
            return _Answer(f"{self._name} has no kernel on the CPU for {names}, which the node becomes", dtypes)
        if self._loses_float64(question):
            return _Answer(f"{self._name} computes float64 in {self._float64_is} on the CPU", ("float64",))
        return None

    def _conversion(self, model: bytes) -> Any:
        """The converted model, or what the engine says instead."""
        try:
            return self._core.read_model(io.BytesIO(model))
        except Exception as error:
            return native.clean_message(error)

    def _loses_float64(self, question: Question) -> bool:
        is_double = "tensor(double)" in question.output_types and question.op_type not in _MOVING
        return is_double and self._float64_is not in ("f64", "float64")

    @functools.cached_property
    def _float64_is(self) -> str:
        """The type in which a compiled model adds float64 numbers, as the model itself says."""
        opset = native.runtime().opset8
        one = opset.parameter([-1], native.runtime().Type.f64)
        model = native.runtime().Model([opset.add(one, one)], [one])
        compiled = self._core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        precisions = [
            str(operation.get_rt_info()["runtimePrecision"].astype(str))
            for operation in compiled.get_runtime_model().get_ops()
            if str(operation.get_rt_info()["layerType"].astype(str)) == "Eltwise"
        ]
        return {"f32": "float32"}.get(precisions[0], precisions[0]) if precisions else "float64"
