"""Link 3: whether the installed parser takes a node.

Two cases are checked here, because the parser does not report them: it looks operators up without their domain, so it
would run ONNX's ``Add`` for a custom ``mylib::Add``, and it computes float64 as float32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from opbridge.engines.base import IR_VERSION, Refusal, RefusalKind
from opbridge.engines.refusals import UNKNOWN, Reason, refusal_of, version_problem
from opbridge.engines.tensorrt_rtx import native
from opbridge.engines.tensorrt_rtx.native import ParserError, Product
from opbridge.engines.tensorrt_rtx.question import lone_model
from opbridge.onnx_model.names import describe_operator

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["NodeSupport", "has_importer", "reason_of"]

_TYPES = {
    "float32": "FLOAT",
    "float16": "HALF",
    "bfloat16": "BF16",
    "int8": "INT8",
    "int32": "INT32",
    "int64": "INT64",
    "bool": "BOOL",
    "uint8": "UINT8",
    "float8_e4m3fn": "FP8",
    "int4": "INT4",
    "float4_e2m1fn": "FP4",
}
_NO_REASON = re.compile(r"^(?:false|Invalid Node - .*)$")
_ASSERTION = re.compile(r"^Assertion failed: .*?: (?=[A-Z])")


class NodeSupport:
    """Answers for one product, cached per distinct question.

    Args:
        product: The product.
        version: The version of the product.
        newest_opset: The newest opset of a model.
    """

    def __init__(self, product: Product, version: str, newest_opset: int) -> None:
        self._product = product
        self._version = version
        self._newest_opset = newest_opset
        self._answers: dict[bytes, str | None] = {}

    def ask(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """See :meth:`Engine.supports <opbridge.engines.base.Engine.supports>`."""
        if node.domain:
            return refusal_of(node, UNKNOWN)
        missing = self._missing_types(node)
        if not missing:
            return refusal_of(node, self._reason(node, opset_imports))
        text = f"{self._title} has no tensors of {' and '.join(missing)}"
        if missing == ("float64",):
            text = f"{self._title} computes float64 as float32"
        return refusal_of(node, Reason(text, RefusalKind.DTYPE, missing))

    @property
    def _title(self) -> str:
        return f"{self._product.title} {self._version}"

    def _reason(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Reason | None:
        opset = node.version or opset_imports.get("", 1)
        impossible = version_problem(self._title, self._newest_opset, node.op_type, opset)
        if impossible is not None:
            return impossible
        if not has_importer(self._product, node.op_type):
            return Reason(f"the parser of {self._title} has no importer for {describe_operator('', node.op_type)}")
        model = lone_model(node, opset_imports, IR_VERSION)
        if model is None:
            return None
        if model not in self._answers:
            errors = native.parse(self._product, model).errors
            self._answers[model] = reason_of(errors[0]) if errors else None
        given = self._answers[model]
        return None if given is None else Reason(f"the parser of {self._title} refuses it: {given}")

    def _missing_types(self, node: ir.Node) -> tuple[str, ...]:
        """The element types of the node for which the product has no tensors."""
        known = native.runtime(self._product).DataType
        values = [value for value in (*node.inputs, *node.outputs) if value is not None and value.dtype is not None]
        names = ["str" if value.dtype.is_string() else str(value.dtype.numpy().name) for value in values]
        return tuple(dict.fromkeys(name for name in names if not hasattr(known, _TYPES.get(name, "-"))))


def has_importer(product: Product, op_type: str) -> bool:
    """Whether the parser knows an operator of this type, in any domain."""
    key = (product, op_type)
    if key not in _importers:
        trt = native.runtime(product)
        network = native.builder(product).create_network(0)
        _importers[key] = trt.OnnxParser(network, native.logger(product)).supports_operator(op_type)
    return _importers[key]


_importers: dict[tuple[Product, str], bool] = {}


def reason_of(error: ParserError) -> str:
    """The parser's reason in one line; if that is only a condition in its source, the name of the check."""
    if _NO_REASON.match(error.description) or not error.description:
        return f"its {error.function} does not hold" if error.function else "no reason given"
    return _ASSERTION.sub("", error.description).strip()
