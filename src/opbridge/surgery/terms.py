"""Reads what a value computes in a normal form, so that equivalent spellings in two graphs become equal.

The following are skipped: ``Identity``, and nodes that change nothing for known sizes (a ``Cast`` to the same type, an
``Expand`` to the same shape, ``Dropout`` in inference). ``Reshape``, ``Flatten``, ``Squeeze`` and ``Unsqueeze`` become
one operation, *view*, described by the shape of its result, regardless of how that shape is computed. Consecutive views
and consecutive transposes are merged. ``Gemm`` becomes a product and a sum. Values computed from constants become
constants.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from opbridge.surgery.dimensions import Sizes, sizes_of

__all__ = ["COMMUTATIVE", "Reader", "Term"]

COMMUTATIVE = {"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr"}
_VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}
_LARGEST_FOLDED = 4096
_UNFOLDABLE = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}


@dataclasses.dataclass(frozen=True, eq=False)
class Term:
    """One operation.

    Attributes:
        operator: ``"domain::Op"``, ``"view"``, ``"transpose"``, or ``"leaf"`` for a value that no node produces.
        attributes: The attributes, with defaults filled in.
        operands: The operands: values, or terms that are not a value of the graph; None for an absent input.
        nodes: The nodes that the term represents.
        value: The value that the term computes; None if it is not a value of the graph.
        output: The index of the value among the outputs of its node.
        through: For a view or transpose, the values between ``value`` and the operand, nearest first.
    """

    operator: str
    attributes: dict[str, Any]
    operands: tuple[Any, ...]
    nodes: tuple[ir.Node, ...]
    value: ir.Value | None
    output: int = 0
    through: tuple[ir.Value, ...] = ()


class Reader:
    """Reads one graph."""

    def __init__(self, opset: int, variable: frozenset[ir.Value] = frozenset()) -> None:
        """Create a reader; the values in ``variable`` are never treated as constants."""
        self._opset = opset
        self._variable = variable
        self._constants: dict[ir.Value, np.ndarray | None] = {}
        self._terms: dict[ir.Value, Term] = {}

    def constant(self, value: ir.Value) -> np.ndarray | None:
        """The array of a constant value; None if the value may differ between runs."""
        if value not in self._constants:
            self._constants[value] = None
            self._constants[value] = self._find_constant(value)
        return self._constants[value]

    def term(self, value: ir.Value | Term) -> Term:
        """The operation that computes the value."""
        if isinstance(value, Term):
            return value
        if value not in self._terms:
            self._terms[value] = self._read(value)
        return self._terms[value]

    def base(self, value: ir.Value) -> tuple[ir.Value, tuple[ir.Node, ...]]:
        """The value that this value equals, and the skipped nodes in between."""
        nodes: list[ir.Node] = []
        while (node := value.producer()) is not None:
            if self._changes_nothing(node, value):
                nodes.append(node)
                value = _first(node)
                continue
            viewed, between, _ = self._viewed(value)
            if viewed is value or not _same_view(sizes_of(value), sizes_of(viewed)):
                break
            nodes.extend(between)
            value = viewed
        return value, tuple(nodes)

    def _viewed(self, value: ir.Value) -> tuple[ir.Value, list[ir.Node], list[ir.Value]]:
        """The value of which this is a view, possibly through other views; the nodes and values in between."""
        nodes: list[ir.Node] = []
        through: list[ir.Value] = []
        while (node := value.producer()) is not None and not node.domain:
            if node.op_type not in _VIEWS and not self._changes_nothing(node, value):
                break
            nodes.append(node)
            value = _first(node)
            through.append(value)
        return value, nodes, through

    def _read(self, value: ir.Value) -> Term:
        base, skipped = self.base(value)
        node = base.producer()
        if node is None:
            return Term("leaf", {}, (), skipped, base)
        if not node.domain and node.op_type in _VIEWS:
            return self._view(base, skipped)
        if not node.domain and node.op_type == "Transpose":
            return self._transpose(base, skipped)
        if not node.domain and node.op_type == "Gemm" and (product := self._gemm(node, base, skipped)) is not None:
            return product
        name = "::".join(filter(None, (node.domain, node.op_type, node.overload)))
        attributes = self._attributes(node)
        if "axis" in attributes and (rank := _rank(node.inputs[0] if node.inputs else None)) is not None:
            attributes["axis"] %= max(rank + (node.op_type == "Unsqueeze"), 1)
        return Term(name, attributes, tuple(node.inputs), (*skipped, node), base, base.index() or 0)

    def _view(self, value: ir.Value, skipped: tuple[ir.Node, ...]) -> Term:
        base, nodes, through = self._viewed(value)
        return Term("view", {"sizes": sizes_of(value)}, (base,), (*skipped, *nodes), value, through=tuple(through))

    def _transpose(self, value: ir.Value, skipped: tuple[ir.Node, ...]) -> Term:
        nodes, through = list(skipped), []
        base, order = value, None
        while (node := base.producer()) is not None and not node.domain and node.op_type == "Transpose":
            perm = self._perm(node)
            if perm is None:
                break
            order = perm if order is None else [perm[axis] for axis in order]
            nodes.append(node)
            through.append(_first(node))
            base, between = self.base(_first(node))
            nodes.extend(between)
            if base is not through[-1]:
                through.append(base)
        if order is None:
            node = value.producer()
            return Term("Transpose", {}, tuple(node.inputs), (*skipped, node), value)
        if order == sorted(order):
            inner = self.term(base)
            return dataclasses.replace(inner, nodes=(*nodes, *inner.nodes))
        return Term("transpose", {"perm": tuple(order)}, (base,), tuple(nodes), value, through=tuple(through))

    def _perm(self, node: ir.Node) -> list[int] | None:
        given = node.attributes.get("perm")
        if given is not None:
            return list(given.as_ints())
        rank = _rank(_first(node))
        return None if rank is None else list(range(rank))[::-1]

    def _gemm(self, node: ir.Node, value: ir.Value, skipped: tuple[ir.Node, ...]) -> Term | None:
        attributes = self._attributes(node)
        if attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0:
            return None
        factors = [
            self._transposed(factor) if attributes.get(flag) else factor
            for factor, flag in zip(node.inputs, ("transA", "transB"), strict=False)
        ]
        nodes = (*skipped, node)
        if len(node.inputs) < 3 or node.inputs[2] is None:
            return Term("MatMul", {}, tuple(factors), nodes, value)
        return Term("Add", {}, (Term("MatMul", {}, tuple(factors), (), None), node.inputs[2]), nodes, value)

    def _transposed(self, value: ir.Value) -> Term | ir.Value:
        inner = self.term(value)
        if inner.operator == "transpose" and inner.attributes["perm"] == (1, 0):
            return inner.operands[0]  # type: ignore[no-any-return]
        return Term("transpose", {"perm": (1, 0)}, (value,), (), None)

    def _attributes(self, node: ir.Node) -> dict[str, Any]:
        try:
            schema = onnx.defs.get_schema(node.op_type, self._opset, "") if not node.domain else None
        except onnx.defs.SchemaError:
            schema = None
        found: dict[str, Any] = {}
        for name, declared in (schema.attributes if schema else {}).items():
            if declared.default_value.type != onnx.AttributeProto.UNDEFINED:
                found[name] = _plain(onnx.helper.get_attribute_value(declared.default_value))
        for name, attribute in node.attributes.items():
            found[name] = ("reference", attribute.ref_attr_name) if attribute.is_ref() else _plain(attribute.value)
        return found

    def _changes_nothing(self, node: ir.Node, value: ir.Value) -> bool:
        if node.domain or not node.inputs or node.inputs[0] is None:
            return False
        source = node.inputs[0]
        if node.op_type == "Identity":
            return True
        if node.op_type == "Dropout":
            training = node.inputs[2] if len(node.inputs) > 2 else None
            off = training is None or ((found := self.constant(training)) is not None and not found.any())
            return bool(value.index() == 0 and off)
        if node.op_type == "Cast":
            return source.dtype is not None and int(source.dtype) == node.attributes["to"].as_int()
        if node.op_type == "CastLike":
            like = node.inputs[1]
            return source.dtype is not None and like is not None and source.dtype == like.dtype
        same = sizes_of(source) == sizes_of(value) and _known(sizes_of(source))
        return same and node.op_type == "Expand"

    def _find_constant(self, value: ir.Value) -> np.ndarray | None:
        if value in self._variable:
            return None
        if value.const_value is not None and not value.is_graph_input():
            return value.const_value.numpy()
        node = value.producer()
        if node is None or node.domain or node.op_type in _UNFOLDABLE:
            return None
        if node.op_type == "Constant":
            return _of_constant(node)
        if (sizes := self._sizes_read(node)) is not None:
            return sizes
        if node.op_type == "CastLike" and (like := node.inputs[1]) is not None and like.dtype is not None:
            given = self.constant(_first(node))
            return None if given is None else given.astype(like.dtype.numpy())
        if any(attribute.type is ir.AttributeType.GRAPH for attribute in node.attributes.values()):
            return None
        return self._computed(node, value)

    def _sizes_read(self, node: ir.Node) -> np.ndarray | None:
        """The output of ``Shape``, or of a ``Gather`` or ``Slice`` of it, if the sizes are fixed."""
        if node.op_type == "Shape":
            return _fixed(_of_shape(node))
        source = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        if node.op_type not in {"Gather", "Slice"} or source is None or source.op_type != "Shape" or source.domain:
            return None
        sizes = _of_shape(source)
        chosen = [self.constant(item) for item in node.inputs[1:] if item is not None]
        given = [item for item in chosen if item is not None]
        if sizes is None or len(given) < len(node.inputs) - 1:
            return None
        if node.op_type == "Gather":
            return _fixed(np.array(sizes, object)[given[0]])
        step = int(given[3][0]) if len(given) > 3 else 1
        return _fixed(sizes[int(given[0][0]) : int(given[1][0]) : step])

    def _computed(self, node: ir.Node, value: ir.Value) -> np.ndarray | None:
        """The output of a node if all its inputs are small constants."""
        given = [None if item is None else self.constant(item) for item in node.inputs]
        if not given or any(
            item is not None and (found is None or found.size > _LARGEST_FOLDED)
            for item, found in zip(node.inputs, given, strict=True)
        ):
            return None
        inputs = ["" if item is None else f"i{position}" for position, item in enumerate(given)]
        copy = onnx.NodeProto()
        copy.CopyFrom(ir.to_proto(node))
        copy.ClearField("input")
        copy.input.extend(inputs)
        for position in range(len(copy.output)):
            copy.output[position] = f"o{position}"
        graph = onnx.helper.make_graph(
            [copy],
            "constant",
            [_info(name, item) for name, item in zip(inputs, given, strict=True) if item is not None],
            [onnx.ValueInfoProto(name=f"o{value.index() or 0}")],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self._opset)])
        try:
            session = onnx.reference.ReferenceEvaluator(model)
            feeds = {name: item for name, item in zip(inputs, given, strict=True) if item is not None}
            return np.asarray(session.run(None, feeds)[0])
        except Exception:
            # Nodes that the evaluator can't run are compared as they are written.
            return None


def _of_shape(node: ir.Node) -> list[Any] | None:
    """The output of a ``Shape`` node, as far as the sizes are known."""
    sizes = sizes_of(node.inputs[0])
    if sizes is None:
        return None
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    return list(sizes)[0 if start is None else start.as_int() : len(sizes) if end is None else end.as_int()]


def _fixed(sizes: Any) -> np.ndarray | None:
    """The sizes if all of them are numbers."""
    if sizes is None:
        return None
    array = np.array(sizes, dtype=object)
    if any(not isinstance(size, int) for size in array.reshape(-1)):
        return None
    return array.astype(np.int64)


def _info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, list(array.shape))


def _first(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    return value


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def _known(sizes: Sizes | None) -> bool:
    return sizes is not None and all(size is not None for size in sizes)


def _same_view(one: Sizes | None, other: Sizes | None) -> bool:
    """Whether two views of the same elements have the same shape; a single unknown size follows from the others."""
    if one is None or other is None or len(one) != len(other):
        return False
    unknown = sum(a is None or b is None for a, b in zip(one, other, strict=True))
    return unknown <= 1 and all(a == b or a is None or b is None for a, b in zip(one, other, strict=True))


def _of_constant(node: ir.Node) -> np.ndarray | None:
    for name in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        attribute = node.attributes.get(name)
        if attribute is not None and not attribute.is_ref():
            if name == "value":
                return attribute.as_tensor().numpy()
            return np.array(attribute.value, np.float32 if "float" in name else np.int64)
    return None


def _plain(value: Any) -> Any:
    """An attribute's value in a form that compares by content."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (onnx.TensorProto, ir.TensorProtocol)):
        array = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value.numpy()
        return (str(array.dtype), array.shape, array.tobytes())
    return value
