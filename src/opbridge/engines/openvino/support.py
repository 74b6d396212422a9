"""Link 3: whether the installed OpenVINO takes a node.

Two parts of OpenVINO are asked with a model of that node alone: the ONNX frontend, whether it has a rule that converts
the node, and the CPU plugin, whether it takes the converted operations (30 ms, so equal questions are asked once).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opbridge.engines.base import IR_VERSION, Refusal, RefusalKind
from opbridge.engines.openvino.questions import OpenVinoQuestions
from opbridge.engines.question import Question, bare_model, dtype_of_type
from opbridge.engines.refusals import UNKNOWN, Reason, refusal_of, version_problem

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["OpenVinoSupport"]

_UNKNOWN = re.compile(r"No conversion rule found for operations?")
# These operators move numbers and compute nothing.
_MOVING = frozenset({"Cast", "CastLike", "Constant", "Identity"})


class OpenVinoSupport:
    """Answers for the installed version, cached per distinct question.

    Args:
        version: The version of OpenVINO.
        newest_opset: The newest version of the standard domain that it knows.
    """

    def __init__(self, version: str, newest_opset: int) -> None:
        self._name = f"OpenVINO {version}"
        self._newest_opset = newest_opset
        self._questions = OpenVinoQuestions(self._name)
        self._answers: dict[Any, Reason | None] = {}

    def ask(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """See :meth:`Engine.supports <opbridge.engines.base.Engine.supports>`."""
        question = Question(node, opset_imports)
        if question.key not in self._answers:
            self._answers[question.key] = self._answer(question)
        answer = self._answers[question.key]
        if answer is not None and answer is not UNKNOWN and question.stands_alone:
            # Some operators need sizes, such as those of a weight, which the first question leaves out.
            key = (question.key, question.sizes)
            if key not in self._answers:
                self._answers[key] = self._answer(question, sized=True)
            answer = self._answers[key]
        return refusal_of(node, answer)

    def _answer(self, question: Question, *, sized: bool = False) -> Reason | None:
        if not question.domain:
            problem = version_problem(self._name, self._newest_opset, question.op_type, question.opset)
            if problem is not None:
                return problem
        dtypes = tuple(dict.fromkeys(dtype_of_type(name) for name in question.input_types if name))
        if not question.stands_alone:
            imports = {"": self._newest_opset, question.domain: question.opset}
            answer = self._questions.about(bare_model(question.domain, question.op_type, imports, IR_VERSION))
            return UNKNOWN if _UNKNOWN.search(answer.problem) else None
        answer = self._questions.about(question.model_bytes(IR_VERSION, sized=sized))
        if answer.crashed:
            return Reason(answer.crashed)
        if answer.problem:
            return (
                UNKNOWN
                if _UNKNOWN.search(answer.problem)
                else Reason(f"{self._name}: {answer.problem}", missing_dtypes=dtypes)
            )
        # The plugin takes no tensors of unknown rank. In a loop's body the engine infers ranks from the outer graph.
        if answer.left and _ranks_are_known(question):
            names = ", ".join(answer.left)
            return Reason(
                f"{self._name} has no kernel on the CPU for {names}, which the node becomes", missing_dtypes=dtypes
            )
        if "tensor(double)" in question.output_types and question.op_type not in _MOVING:
            loss = self.loses("float64")
            return Reason(loss, RefusalKind.DTYPE, ("float64",)) if loss is not None else None
        return None

    def loses(self, dtype: str) -> str | None:
        """Why the engine does not compute in an element type; None if it does. Only float64 is asked about."""
        narrow = self._questions.float64_is if dtype == "float64" else dtype
        if narrow in ("f64", dtype):
            return None
        return f"{self._name} computes {dtype} in {narrow} on the CPU"


def _ranks_are_known(question: Question) -> bool:
    present = (sizes for sizes, name in zip(question.sizes, question.input_types, strict=True) if name is not None)
    return None not in present
