"""Link 3: whether the installed ONNX Runtime has a kernel for a node.

The last word is a session of that node alone, created in this process (0.2 ms). It knows what the kernel list does
not: casts that the engine inserts around float16, operators that it expands into others, attributes that a kernel
refuses. The list says *why* a node was refused, and answers for nodes that can't stand alone: those with subgraphs,
and those whose types aren't known.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opbridge.engines.base import Refusal
from opbridge.engines.onnxruntime import native
from opbridge.engines.onnxruntime.kernels import KernelList, TypeMatch
from opbridge.engines.onnxruntime.question import Question
from opbridge.engines.refusals import describe_node, describe_operator, unknown_operator

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["KernelSupport"]

_LACKING = re.compile(r"Could not find an implementation for (?P<versioned>(?P<op_type>\w+)\(\d+\))")


@dataclasses.dataclass(frozen=True)
class _Reason:
    text: str
    missing_dtypes: tuple[str, ...] = ()


class KernelSupport:
    """Answers for one installed build, remembered per distinct question."""

    def __init__(self, version: str, newest_opset: int) -> None:
        self._version = version
        self._newest_opset = newest_opset
        self._kernels = KernelList()
        self._answers: dict[Any, _Reason | None] = {}

    def ask(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """See :meth:`Engine.supports <opbridge.engines.base.Engine.supports>`."""
        if not self._kernels.knows(node.domain, node.op_type):
            return unknown_operator(node)
        question = Question(node, opset_imports)
        if question.key not in self._answers:
            self._answers[question.key] = self._answer(question)
        reason = self._answers[question.key]
        if reason is None:
            return None
        operator = describe_operator(node.domain, node.op_type)
        return Refusal(describe_node(node), operator, reason.text, reason.missing_dtypes)

    def _answer(self, question: Question) -> _Reason | None:
        domain, op_type, opset = question.domain, question.op_type, question.opset
        operator = describe_operator(domain, op_type)
        if not domain and opset > self._newest_opset:
            return _Reason(f"ONNX Runtime {self._version} takes opsets up to {self._newest_opset}, not {opset}")
        schema = self._kernels.schema(domain, op_type, opset)
        if schema is None:
            first = self._kernels.first_version(domain, op_type)
            was = f"is new in opset {first}" if first > opset else "has been removed from the standard"
            return _Reason(f"{operator} {was}, and the model is of opset {opset}")
        if not question.stands_alone:
            return self._answer_from_list(question, schema)
        error = _try_session(question.model_bytes())
        return None if error is None else self._explain(question, schema, error)

    def _match(self, question: Question, schema: Any, *, half_is_float: bool = False) -> TypeMatch:
        return self._kernels.match(schema, question.input_types, question.output_types, half_is_float=half_is_float)

    def _answer_from_list(self, question: Question, schema: Any) -> _Reason | None:
        match = self._match(question, schema, half_is_float=True)
        if match.has_kernels:
            return _type_reason(question, match) if match.missing else None
        # The engine expands an operator without a kernel that the standard defines by others.
        if _has_body(question):
            return None
        return _Reason(
            f"no kernel for {describe_operator(question.domain, question.op_type)} in opset {question.opset}"
        )

    def _explain(self, question: Question, schema: Any, error: Exception) -> _Reason:
        message = native.clean_message(error)
        lacking = _LACKING.search(message)
        if lacking is not None:
            operator = describe_operator(question.domain, question.op_type)
            if lacking["op_type"] != question.op_type:
                return _Reason(f"no kernel for {lacking['versioned']}, into which ONNX Runtime expands {operator}")
            match = self._match(question, schema)
            if match.missing:
                return _type_reason(question, match)
            if not match.has_kernels:
                versions = ", ".join(self._kernels.versions(question.domain, question.op_type)) or "no version"
                return _Reason(f"no kernel for {lacking['versioned']} (there are for {versions})")
        return _Reason(f"ONNX Runtime {self._version}: {message}")


def _try_session(model: bytes) -> Exception | None:
    """The engine's error on a model, or None."""
    onnxruntime = native.runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Nothing is to be folded, and so nothing is run.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = False
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # The traceback would keep the failed session's frames alive.
        return error.with_traceback(None)
    return None


def _has_body(question: Question) -> bool:
    """Whether the standard defines the operator by a function of other operators."""
    import onnx

    try:
        schema = onnx.defs.get_schema(question.op_type, question.opset, question.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _type_reason(question: Question, match: TypeMatch) -> _Reason:
    from opbridge.engines.onnxruntime.question import dtype_of_type

    operator = describe_operator(question.domain, question.op_type)
    lacks = ", ".join(f"{variable} = {dtype_of_type(name)}" for variable, name in match.missing.items())
    has = ", ".join(dict.fromkeys(dtype_of_type(name) for types in match.available.values() for name in types))
    missing = tuple(dict.fromkeys(dtype_of_type(name) for name in match.missing.values()))
    return _Reason(f"no kernel for {operator} in opset {question.opset} with {lacks} (there are: {has})", missing)
