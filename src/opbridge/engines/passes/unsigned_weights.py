"""Writes int8 tensors as uint8 if the engine's products of uint8 and int8 are wrong on this processor.

On an x86 processor without VNNI, ONNX Runtime and OpenVINO add two products of uint8 and int8 in 16 bits, which
saturate, as the documentation of both says. They compute products of int8 and int8 in the same way, but those of uint8
and uint8 exactly. With VNNI, all products are exact, and those of uint8 and int8 are the fastest.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from opbridge.engines import family_of
from opbridge.engines.asked import AskedEngine
from opbridge.engines.versions import SYMBOLIC
from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.names import describe_node
from opbridge.onnx_model.opsets.building import Builder, Names

if TYPE_CHECKING:
    from opbridge.engines.base import Engine

__all__ = ["UnsignedWeightsPass"]

ORDER = 20
"""This pass runs before casts are inserted around nodes without a kernel."""

_FUSED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that ONNX Runtime computes in integers if their inputs are dequantized."""

_POSITIONS = {
    "MatMulInteger": (0, 1, 3),
    "ConvInteger": (0, 1, 3),
    "QLinearMatMul": (0, 3, 5),
    "QLinearConv": (0, 3, 5),
}
"""The inputs of operators on integers: the first factor, the second one, and the zero point of the second one."""

_SHIFT = 128


def for_engine(model: ir.Model, engine: Engine, kernels: Sequence[Any]) -> UnsignedWeightsPass | None:
    """The pass if the model has such products, and this engine computes them with saturation."""
    if engine.package not in ("onnxruntime", "openvino") or not any(True for _ in _products(model)):
        return None
    return UnsignedWeightsPass() if _saturates(engine) else None


@functools.cache
def _saturates(engine: Engine) -> bool:
    """Whether a product of the largest numbers, which the engine computes in a child process, is too small."""
    asked = AskedEngine(engine.name, family_of(engine.name), getattr(engine, "python", None))
    rows, terms, columns = 4, 64, 8
    text = f"""<ir_version: 8, opset_import: ["": 13]>
        product (float[{rows}, {terms}] x) => (float[{rows}, {columns}] y) <float one = {{1}}, uint8 zero = {{0}}> {{
            rounded = QuantizeLinear(x, one, zero) a = DequantizeLinear(rounded, one, zero)
            b = DequantizeLinear(weights, one) y = MatMul(a, b) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full((terms, columns), 127, np.int8), "weights"))
    found = asked.results(model.SerializeToString(), {"x": np.full((rows, terms), 255, np.float32)})["y"]
    return bool((found < 0.9 * terms * 255 * 127).any())


class UnsignedWeightsPass(ir.passes.InPlacePass):
    """Add 128 to int8 tensors and their zero points, which are then uint8 and stand for the same numbers."""

    def call(self, model: ir.Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the products."""
        changed = [describe_node(node) for node in _products(model)]
        shift = _Shift(Names(model), model.opset_imports[""])
        for node in list(model.graph.all_nodes()):
            if _is_constant_factor(node):
                shift.constant(node, 0)
                shift.zero_point(node, 2)
            elif _is_signed_rounding(node):
                shift.zero_point(node, 2)
                node.outputs[0].type = ir.TensorType(ir.DataType.UINT8)
                for user, _ in list(node.outputs[0].uses()):
                    shift.zero_point(user, 2)
            elif _multiplies_signed_weights(node):
                _, weights, zero_point = _POSITIONS[node.op_type]
                shift.factor(node, weights)
                shift.zero_point(node, zero_point)
        what = "int8 tensors are uint8, because this processor multiplies uint8 and int8 with saturation"
        return AdaptationResult(model, bool(changed), (Adaptation(what, tuple(changed)),) if changed else ())


def _products(model: ir.Model) -> Iterator[ir.Node]:
    """The nodes whose results may be wrong, and that the pass can make right."""
    for node in model.graph.all_nodes():
        if SYMBOLIC in node.metadata_props:
            continue
        if _multiplies_signed_weights(node):
            yield node
        elif node.op_type in _FUSED and not node.domain:
            sources = [value.producer() if value is not None else None for value in node.inputs[:2]]
            found = [source for source in sources if source is not None and _is_standard(source, "DequantizeLinear")]
            if len(found) == len(sources) and any(map(_becomes_unsigned, found)):
                yield node


def _is_standard(node: ir.Node, op_type: str) -> bool:
    return node.op_type == op_type and not node.domain and SYMBOLIC not in node.metadata_props


def _multiplies_signed_weights(node: ir.Node) -> bool:
    if node.op_type not in _POSITIONS or not _is_standard(node, node.op_type):
        return False
    data, weights, zero_point = _POSITIONS[node.op_type]
    first = node.inputs[data]
    second = node.inputs[weights]
    if first is None or second is None:
        return False
    are_mixed = first.dtype == ir.DataType.UINT8 and second.dtype == ir.DataType.INT8
    return are_mixed and _is_known(node, zero_point)


def _becomes_unsigned(dequantize: ir.Node) -> bool:
    if _is_constant_factor(dequantize):
        return True
    tensor = dequantize.inputs[0]
    source = tensor.producer() if tensor is not None else None
    return source is not None and _is_signed_rounding(source)


def _is_constant_factor(node: ir.Node) -> bool:
    """Whether a node dequantizes an int8 constant with a known zero point."""
    is_int8 = _is_standard(node, "DequantizeLinear") and _constant(node.inputs[0], ir.DataType.INT8) is not None
    return is_int8 and _is_known(node, 2)


def _is_signed_rounding(node: ir.Node) -> bool:
    """Whether a node rounds to int8 for nodes that dequantize, and all their zero points are known."""
    if not _is_standard(node, "QuantizeLinear") or node.outputs[0].dtype != ir.DataType.INT8:
        return False
    users = [user for user, position in node.outputs[0].uses() if position == 0]
    return (
        not node.outputs[0].is_graph_output()
        and "output_dtype" not in node.attributes
        and len(users) == len(list(node.outputs[0].uses()))
        and all(_is_standard(user, "DequantizeLinear") for user in users)
        and all(_is_known(one, 2) for one in (node, *users))
    )


def _is_known(node: ir.Node, position: int) -> bool:
    """Whether a zero point is a constant, or absent, which is 0, and its shape is known."""
    value = node.inputs[position] if position < len(node.inputs) else None
    return _sizes_of(node) is not None if value is None else _constant(value, ir.DataType.INT8) is not None


def _constant(value: ir.Value | None, dtype: ir.DataType) -> Any:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return tensor if tensor is not None and tensor.dtype == dtype else None


def _sizes_of(node: ir.Node) -> tuple[int, ...] | None:
    """The sizes of an absent zero point: those of the scale, none for a product; None if they are not known."""
    if node.op_type in _POSITIONS:
        return ()
    shape = node.inputs[1].shape if node.inputs[1] is not None else None
    return tuple(shape.numpy()) if shape is not None and shape.is_static() else None


class _Shift:
    """Adds 128; a constant with several users is written once."""

    def __init__(self, names: Names, opset: int) -> None:
        self._names = names
        self._opset = opset
        self._shifted: dict[ir.Value, ir.Value] = {}

    def factor(self, node: ir.Node, position: int) -> None:
        """A constant, or what the model computes."""
        value = node.inputs[position]
        if value is None or _constant(value, ir.DataType.INT8) is not None:
            self.constant(node, position)
            return
        op = Builder(node, self._opset, self._names, lambda made: None)
        wide = op.Add(op.cast(value, ir.DataType.INT32), _SHIFT)
        node.replace_input_with(position, op.cast(wide, ir.DataType.UINT8))

    def constant(self, node: ir.Node, position: int) -> None:
        before = node.inputs[position]
        assert before is not None
        if before not in self._shifted:
            array = _constant(before, ir.DataType.INT8).numpy().astype(np.int16) + _SHIFT
            self._shifted[before] = self._new(before.graph, f"{before.name}_unsigned", array.astype(np.uint8))
        node.replace_input_with(position, self._shifted[before])
        if not before.uses() and before.is_initializer() and not before.is_graph_output():
            before.graph.initializers.pop(before.name)  # type: ignore[union-attr, arg-type]

    def zero_point(self, node: ir.Node, position: int) -> None:
        if position < len(node.inputs) and node.inputs[position] is not None:
            self.constant(node, position)
            return
        sizes = _sizes_of(node)
        assert sizes is not None  # _is_known
        node.resize_inputs(max(len(node.inputs), position + 1))
        zero_point = self._new(node.graph, f"{node.name}_zero_point", np.full(sizes, _SHIFT, np.uint8))
        node.replace_input_with(position, zero_point)

    def _new(self, graph: ir.Graph | ir.Function | None, name: str, array: np.ndarray) -> ir.Value:
        assert isinstance(graph, ir.Graph)
        name = self._names.fresh(name)
        tensor = ir.tensor(array, name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        graph.register_initializer(value)
        return value
