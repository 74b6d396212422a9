"""Link 3: whether the installed OpenVINO takes a node.

Two parts of it are asked, with a model of that node alone: the ONNX frontend, whether it has a rule that converts the
node, and the CPU plugin, whether it takes what the node becomes (30 ms, so equal questions are asked once).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opbridge.engines.base import IR_VERSION, Refusal
from opbridge.engines.openvino.questions import OpenVinoQuestions
from opbridge.engines.question import Question, bare_model, dtype_of_type, version_problem
from opbridge.engines.refusals import unknown_operator
from opbridge.onnx_model.names import describe_node, describe_operator

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
        self._questions = OpenVinoQuestions(self._name)
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

    def _answer(self, question: Question, *, sized: bool = False) -> _Answer | None:
        problem = version_problem(self._name, self._newest_opset, question)
        if problem is not None:
            return _Answer(problem)
        dtypes = tuple(dict.fromkeys(dtype_of_type(name) for name in question.input_types if name))
        if not question.stands_alone:
            imports = {"": self._newest_opset, question.domain: question.opset}
            said = self._questions.about(bare_model(question.domain, question.op_type, imports, IR_VERSION))
            return _Answer() if _UNKNOWN.search(said.problem) else None
        said = self._questions.about(question.model_bytes(IR_VERSION, sized=sized))
        if said.crashed:
            return _Answer(said.crashed)
        if said.problem:
            return _Answer() if _UNKNOWN.search(said.problem) else _Answer(f"{self._name}: {said.problem}", dtypes)
        # The plugin takes nothing of unknown rank. In a loop's body the engine works the ranks out from outside.
        if said.left and _ranks_are_known(question):
            names = ", ".join(said.left)
            return _Answer(f"{self._name} has no kernel on the CPU for {names}, which the node becomes", dtypes)
        if self._loses_float64(question):
            narrow = self._questions.float64_is
            return _Answer(f"{self._name} computes float64 in {narrow} on the CPU", ("float64",))
        return None

    def _loses_float64(self, question: Question) -> bool:
        is_double = "tensor(double)" in question.output_types and question.op_type not in _MOVING
        return is_double and self._questions.float64_is not in ("f64", "float64")


def _ranks_are_known(question: Question) -> bool:
    present = (sizes for sizes, name in zip(question.sizes, question.input_types, strict=True) if name is not None)
    return None not in present
