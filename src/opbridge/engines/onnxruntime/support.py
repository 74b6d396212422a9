"""Link 3: whether a build of ONNX Runtime has a kernel for a node.

The answer comes from a session of that node alone (0.2 ms, in a child process, perhaps of another environment). It
covers what the kernel list does not show: casts that the engine inserts around float16, operators that it expands
into others, attributes that a kernel refuses. The list shows *why* a node was refused, and answers for nodes that
can't be run alone: those with subgraphs and those with unknown types. A build that is too old to list its kernels is
assumed to take such nodes until the whole model is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opbridge.engines.base import IR_VERSION, Refusal, RefusalKind
from opbridge.engines.onnxruntime.builds import Build
from opbridge.engines.onnxruntime.kernels import KernelList, TypeMatch
from opbridge.engines.question import Question, bare_model, dtype_of_type
from opbridge.engines.refusals import UNKNOWN, Reason, refusal_of
from opbridge.onnx_model.names import describe_operator

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["KernelSupport"]

_LACKING = re.compile(r"Could not find an implementation for (?P<versioned>(?P<op_type>\w+)\(\d+\))")
_UNKNOWN = re.compile(r"is not a registered function/op|No Op registered for")


class KernelSupport:
    """Answers for one build, cached per distinct question.

    Args:
        build: The build.
        newest_opset: The newest version of the standard domain that the build takes.
        newest_ir_version: The newest version of the ONNX IR that the build reads.
    """

    def __init__(self, build: Build, newest_opset: int, newest_ir_version: int) -> None:
        self._build = build
        self._version = build.version
        self._newest_opset = newest_opset
        self._ir_version = min(IR_VERSION, newest_ir_version)
        lists = build.lists()
        self._kernels = None if lists is None else KernelList(*lists)
        self._known: dict[tuple[str, str], bool] = {}
        self._answers: dict[Any, Reason | None] = {}

    def ask(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """See :meth:`Engine.supports <opbridge.engines.base.Engine.supports>`."""
        if not self._knows(node, opset_imports):
            return refusal_of(node, UNKNOWN)
        question = Question(node, opset_imports)
        if question.key not in self._answers:
            self._answers[question.key] = self._answer(question)
        reason = self._answers[question.key]
        if reason is not None and self._sizes_may_tell(question):
            reason = self._answer_sized(question, reason)
        return refusal_of(node, reason)

    def _knows(self, node: ir.Node, opset_imports: Mapping[str, int]) -> bool:
        """Whether the build has an operator of this name; a build without lists is asked with a node of that name."""
        key = (node.domain, node.op_type)
        if self._kernels is not None:
            return self._kernels.knows(*key)
        if key not in self._known:
            # An opset that is too new would be refused before the name is checked.
            imports = {**opset_imports, "": min(opset_imports.get("", self._newest_opset), self._newest_opset)}
            error = self._build.refusal_of(bare_model(*key, imports, self._ir_version)) if node.domain else None
            self._known[key] = error is None or not _UNKNOWN.search(error)
        return self._known[key]

    def _answer(self, question: Question) -> Reason | None:
        domain, op_type, opset = question.domain, question.op_type, question.opset
        operator = describe_operator(domain, op_type)
        if not domain and opset > self._newest_opset:
            return Reason(
                f"ONNX Runtime {self._version} takes opsets up to {self._newest_opset}, not {opset}", RefusalKind.OPSET
            )
        if self._kernels is None:
            error = self._build.refusal_of(question.model_bytes(self._ir_version)) if question.stands_alone else None
            return None if error is None else self._explain_without_list(question, error)
        schema = self._kernels.schema(domain, op_type, opset)
        if schema is None:
            first = self._kernels.first_version(domain, op_type)
            was = f"is new in opset {first}" if first > opset else "has been removed from the standard"
            return Reason(f"{operator} {was}, and the model is of opset {opset}", RefusalKind.OPSET)
        if not question.stands_alone:
            return self._answer_from_list(question, schema, self._kernels)
        error = self._build.refusal_of(question.model_bytes(self._ir_version))
        return None if error is None else self._explain(question, schema, error, self._kernels)

    def _sizes_may_tell(self, question: Question) -> bool:
        """Whether the engine takes the node's opset, and the standard defines the operator by a function body."""
        return question.stands_alone and question.opset <= self._newest_opset and _has_body(question)

    def _answer_sized(self, question: Question, reason: Reason) -> Reason | None:
        """The answer for the node's own sizes, on which the function bodies of some standard operators depend."""
        key = (question.key, question.sizes)
        if key not in self._answers:
            error = self._build.refusal_of(question.model_bytes(self._ir_version, sized=True))
            self._answers[key] = None if error is None else reason
        return self._answers[key]

    def _answer_from_list(self, question: Question, schema: Any, kernels: KernelList) -> Reason | None:
        match = kernels.match(schema, question.input_types, question.output_types, half_is_float=True)
        if match.has_kernels:
            return _type_reason(question, match) if match.missing else None
        # The engine expands an operator without a kernel if the standard defines it by a function body.
        if _has_body(question):
            return None
        return Reason(f"no kernel for {describe_operator(question.domain, question.op_type)} in opset {question.opset}")

    def _explain(self, question: Question, schema: Any, message: str, kernels: KernelList) -> Reason:
        lacking = _LACKING.search(message)
        if lacking is not None:
            operator = describe_operator(question.domain, question.op_type)
            if lacking["op_type"] != question.op_type:
                return Reason(f"no kernel for {lacking['versioned']}, into which ONNX Runtime expands {operator}")
            match = kernels.match(schema, question.input_types, question.output_types)
            if match.missing:
                return _type_reason(question, match)
            if not match.has_kernels:
                versions = ", ".join(kernels.versions(question.domain, question.op_type)) or "no version"
                return Reason(f"no kernel for {lacking['versioned']} (there are for {versions})")
        return Reason(f"ONNX Runtime {self._version}: {message}")

    def _explain_without_list(self, question: Question, message: str) -> Reason:
        """The engine's message. It does not name the unsupported element type, so any of them may be the cause."""
        lacking = _LACKING.search(message)
        if lacking is None or lacking["op_type"] != question.op_type:
            return Reason(f"ONNX Runtime {self._version}: {message}")
        types = tuple(dict.fromkeys(dtype_of_type(name) for name in question.input_types if name))
        return Reason(
            f"no kernel for {lacking['versioned']} with {', '.join(types) or 'no input'}", RefusalKind.DTYPE, types
        )


def _has_body(question: Question) -> bool:
    """Whether the standard defines the operator by a function of other operators."""
    import onnx

    try:
        schema = onnx.defs.get_schema(question.op_type, question.opset, question.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _type_reason(question: Question, match: TypeMatch) -> Reason:
    operator = describe_operator(question.domain, question.op_type)
    lacks = ", ".join(f"{variable} = {dtype_of_type(name)}" for variable, name in match.missing.items())
    has = ", ".join(dict.fromkeys(dtype_of_type(name) for types in match.available.values() for name in types))
    missing = tuple(dict.fromkeys(dtype_of_type(name) for name in match.missing.values()))
    return Reason(
        f"no kernel for {operator} in opset {question.opset} with {lacks} (there are: {has})",
        RefusalKind.DTYPE,
        missing,
    )
