"""Whether two models compute their outputs by the same nodes, whatever the names of nodes and values are."""

from __future__ import annotations

import collections
import functools
import hashlib

import numpy as np
import onnx
import onnx_ir as ir

from opbridge.onnx_model.names import describe_operator
from opbridge.onnx_model.opsets import convert_opset

__all__ = ["difference"]


def difference(old: ir.Model, new: ir.Model) -> str:
    """Return how the outputs of ``new`` are computed differently from those of ``old``; empty if they are not.

    Identity nodes, names, attributes that have their default, and whether a constant of one element has a shape are not
    compared. An empty constant is an absent input.
    """
    opset = max(old.opset_imports.get("", 0), new.opset_imports.get("", 0))
    old, new = (convert_opset(model, opset).model for model in (old, new))
    if len(old.graph.outputs) != len(new.graph.outputs):
        return f"it has {len(new.graph.outputs)} outputs, not {len(old.graph.outputs)}"
    known, others = _digests(old.graph, opset), _digests(new.graph, opset)
    for mine, theirs in zip(old.graph.outputs, new.graph.outputs, strict=True):
        if known[mine] != others[theirs]:
            return f"the output {theirs.name!r} is computed by other nodes{_counts(old, new)}"
    return ""


def _counts(old: ir.Model, new: ir.Model) -> str:
    """Return the operators that only one of the models has."""
    one, other = _operators(old), _operators(new)
    parts = [("without ", one - other), ("with ", other - one)]
    texts = [word + ", ".join(sorted(more)) for word, more in parts if more]
    return f" ({'; '.join(texts)})" if texts else ""


def _operators(model: ir.Model) -> collections.Counter[str]:
    nodes = (node for node in model.graph.all_nodes() if node.op_type not in ("Constant", "Identity"))
    return collections.Counter(describe_operator(node.domain, node.op_type) for node in nodes)


def _digests(graph: ir.Graph, opset: int, outer: dict[ir.Value, str] | None = None) -> dict[ir.Value, str]:
    """Return a digest of what computes each value of a graph."""
    known = dict(outer or {})
    for position, value in enumerate(graph.inputs):
        known[value] = _digest("input", position, len(known) if outer else "")
    for value in graph.initializers.values():
        known[value] = _of_tensor(value.const_value)
    for node in graph:
        constant = ir.convenience.get_const_tensor(node.outputs[0]) if node.op_type == "Constant" else None
        if constant is not None:
            known[node.outputs[0]] = _of_tensor(constant)
        elif node.op_type == "Identity" and not node.domain and node.inputs[0] is not None:
            known[node.outputs[0]] = known[node.inputs[0]]
        else:
            given = [known[value] if value is not None else "" for value in node.inputs]
            while given and not given[-1]:
                given.pop()
            defaults = {} if node.domain else _defaults(node.op_type, opset)
            stated = {name: _of_attribute(item, opset, known) for name, item in node.attributes.items()}
            attributes = [f"{name}={text}" for name, text in sorted(stated.items()) if defaults.get(name) != text]
            for position, value in enumerate(node.outputs):
                known[value] = _digest(node.domain, node.op_type, *given, "|", *attributes, position)
    return known


@functools.cache
def _defaults(operator: str, opset: int) -> dict[str, str]:
    """Return the default values of the attributes of a standard operator."""
    if not onnx.defs.has(operator, opset, ""):
        return {}
    attributes = onnx.defs.get_schema(operator, opset, "").attributes
    stated = {name: item.default_value for name, item in attributes.items() if item.default_value.type}
    return {name: _of_attribute(ir.serde.deserialize_attribute(value), opset, {}) for name, value in stated.items()}


def _of_attribute(attribute: ir.Attr, opset: int, known: dict[ir.Value, str]) -> str:
    if attribute.type is ir.AttributeType.GRAPH:
        inner = attribute.as_graph()
        digests = _digests(inner, opset, known)
        return _digest(*(digests[value] for value in inner.outputs))
    if attribute.type is ir.AttributeType.TENSOR:
        return _of_tensor(attribute.as_tensor())
    return str(list(attribute.value) if isinstance(attribute.value, (list, tuple)) else attribute.value)


def _of_tensor(tensor: ir.TensorProtocol | None) -> str:
    if tensor is None:
        return "unknown"
    array = np.asarray(tensor.numpy())
    if not array.size:
        return ""
    shape = () if array.size == 1 else array.shape
    content = str(array.tolist()).encode() if array.dtype == object else array.tobytes()
    return _digest(tensor.dtype, shape, hashlib.sha256(content).hexdigest())


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
