"""Rewrite nodes that kernels compute, so that pnnx passes them through.

pnnx passes ONNX operators of other domains to ONNX Runtime, which refuses them, and then crashes. It keeps an operator
whose name begins with ``aten_`` and whose function body determines the shapes. So a node with a kernel is replaced by
such an operator; its attributes are written to a file next to the net.

ncnn has at most four dimensions, guesses which one is the batch, and runs a layer written in Python once per element of
the batch. A tensor of one dimension has no batch. So kernels get flat tensors, and their shapes are recorded.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from opbridge.engines.library_kernels import attributes_of
from opbridge.engines.ncnn.carried import CARRIED
from opbridge.engines.ncnn.layers import KERNEL_LAYER
from opbridge.errors import EngineError
from opbridge.onnx_model.infer import with_types
from opbridge.onnx_model.names import describe_operator

__all__ = ["named_in_param", "stand_in"]

_DOMAIN = "opbridge.kernels"
_PREFIX = "opbridge_"


def named_in_param(param: str) -> str:
    """The parameter file, with each placeholder replaced by a kernel's layer and its position."""
    lines = []
    for line in param.splitlines():
        kind = line.split(maxsplit=1)[0] if line else ""
        if kind.startswith(f"aten::{_PREFIX}"):
            position = kind.removeprefix(f"aten::{_PREFIX}")
            line = f"{line.replace(kind, KERNEL_LAYER, 1).rstrip()} 0={position}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def stand_in(model: onnx.ModelProto, targets: Collection[str]) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Replace the nodes that kernels compute by placeholders, in place.

    Args:
        model: A model that states the shapes of the inputs and outputs of these nodes.
        targets: ``"domain::Op"`` of the kernels, and of the operators in this engine's folder.

    Returns:
        JSON data of each such node (its kernel, its attributes, and the types and shapes of its inputs and outputs),
        and the constant inputs by their names in that data.

    Raises:
        EngineError: ncnn can't pass such tensors to a kernel; the message names the node.
    """
    chosen = [node for node in model.graph.node if describe_operator(node.domain, node.op_type) in targets]
    if not chosen:
        return [], {}
    _drop_unused_results(model, chosen)
    values = _values(model)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    opset = next(item.version for item in model.opset_import if not item.domain)
    descriptions: list[dict[str, Any]] = []
    kept: dict[str, np.ndarray] = {}
    nodes = []
    for node in model.graph.node:
        if describe_operator(node.domain, node.op_type) not in targets:
            nodes.append(node)
            continue
        writer = _StandIn(node, len(descriptions), values, constants)
        nodes += writer.nodes
        model.functions.append(writer.function(opset))
        descriptions.append(writer.description)
        kept.update(writer.constants)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    return descriptions, kept


def _drop_unused_results(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Leave out results that nothing reads, in place: pnnx removes them, and the layer would have too many."""
    used = {value.name for value in model.graph.output} | set(_names_read(model.graph))
    for node in nodes:
        node.output[:] = [name if name in used else "" for name in node.output]


def _names_read(graph: onnx.GraphProto) -> Iterator[str]:
    """The values that nodes read, those in inner graphs too."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _names_read(inner)
                yield from (value.name for value in inner.output)


def _values(model: onnx.ModelProto) -> dict[str, ir.Value]:
    typed = with_types(ir.serde.deserialize_model(model))
    found = {value.name: value for value in (*typed.graph.inputs, *typed.graph.initializers.values()) if value.name}
    found.update({value.name: value for node in typed.graph for value in node.outputs if value.name})
    return found


class _StandIn:
    """The placeholder of one node, between reshapes to and from flat tensors. A rank of 0 is one element here."""

    def __init__(
        self,
        node: onnx.NodeProto,
        position: int,
        values: Mapping[str, ir.Value],
        constants: Mapping[str, onnx.TensorProto],
    ) -> None:
        self._node = node
        self._target = describe_operator(node.domain, node.op_type)
        self._name = f"aten_{_PREFIX}{position}"
        self._shapes: list[tuple[int | str, ...]] = []
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        flat = []
        inputs: list[Any] = []
        for index, name in enumerate(node.input):
            if not name:
                inputs.append(None)
            elif name in constants:
                key = f"{self._name}_in{index}"
                self.constants[key] = numpy_helper.to_array(constants[name])
                inputs.append({"constant": key})
            else:
                dtype, shape = self._checked(values.get(name), f"input {index}")
                self._shapes.append(shape)
                inputs.append({"dtype": dtype, "shape": _open(shape)})
                flat.append(self._reshaped(name, f"{self._name}_in{index}", [-1]) if len(shape) > 1 else name)
        outputs: list[Any] = []
        results = []
        after: list[tuple[str, str, list[int]]] = []
        self._results: list[tuple[str, tuple[int | str, ...]]] = []
        for index, name in enumerate(node.output):
            if not name:
                outputs.append(None)
                continue
            dtype, shape = self._checked(values.get(name), f"output {index}")
            self._results.append((dtype, shape))
            outputs.append({"dtype": dtype, "shape": _open(shape)})
            results.append(name if len(shape) <= 1 else f"{self._name}_out{index}")
            if len(shape) > 1:
                after.append((results[-1], name, _open(shape)))
        self.nodes.append(helper.make_node(self._name, flat, results, name=node.name, domain=_DOMAIN))
        for source, name, sizes in after:
            self._reshaped(source, name, sizes)
        self.description = {
            "node": node.name,
            "target": self._target,
            "attributes": attributes_of(node),
            "inputs": inputs,
            "outputs": outputs,
        }

    def _checked(self, value: ir.Value | None, what: str) -> tuple[str, tuple[int | str, ...]]:
        """The dtype and the shape of a tensor, checked for what ncnn can pass."""
        if value is None or value.dtype is None or value.shape is None:
            raise self._refused(f"the type or the shape of its {what} is not known", "infer shapes in the model")
        dtype = "str" if value.dtype.is_string() else str(value.dtype.numpy().name)
        if dtype not in CARRIED:
            raise self._refused(f"its {what} is {dtype}, and ncnn computes in float32", "convert it in the model")
        sizes = tuple(
            size if isinstance(size, int) else str(size.value or f"{value.name}.{axis}")
            for axis, size in enumerate(value.shape)
        )
        if sum(isinstance(size, str) for size in sizes) > 1:
            raise self._refused(
                f"its {what} has more than one dynamic dimension, [{', '.join(map(str, sizes))}], and ncnn passes a "
                "kernel the number of elements, not their shape",
                "export with all but one of them fixed",
            )
        return dtype, sizes

    def _refused(self, reason: str, fix: str) -> EngineError:
        return EngineError(
            f"ncnn can't run the kernel of {self._target} at node {self._node.name!r}: {reason}.", fix=fix + "."
        )

    def _reshaped(self, name: str, result: str, sizes: Sequence[int]) -> str:
        shape = helper.make_tensor(f"{result}_shape", onnx.TensorProto.INT64, [len(sizes)], list(sizes))
        self.nodes.append(helper.make_node("Constant", [], [f"{result}_shape"], value=shape))
        self.nodes.append(helper.make_node("Reshape", [name, f"{result}_shape"], [result], name=f"{result}_reshape"))
        return result

    def function(self, opset: int) -> onnx.FunctionProto:
        """A function body that only makes flat results of the right lengths."""
        inputs = [f"a{index}" for index in range(len(self._shapes))]
        outputs = [f"b{index}" for index in range(len(self._results))]
        nodes: list[onnx.NodeProto] = []
        for output, (dtype, shape) in zip(outputs, self._results, strict=True):
            length = _fixed(shape)
            nodes.append(_constant(f"{output}_fixed", [length]))
            counted = f"{output}_fixed"
            if any(isinstance(size, str) for size in shape):
                source = self._source(shape)
                per = _fixed(self._shapes[source])
                nodes += [
                    helper.make_node("Size", [inputs[source]], [f"{output}_all"]),
                    _constant(f"{output}_per", [per]),
                    helper.make_node("Div", [f"{output}_all", f"{output}_per"], [f"{output}_open"]),
                    helper.make_node("Mul", [f"{output}_open", f"{output}_fixed"], [f"{output}_length"]),
                ]
                counted = f"{output}_length"
            zero = numpy_helper.from_array(np.zeros(1, dtype))
            nodes.append(helper.make_node("ConstantOfShape", [counted], [output], value=zero))
        return helper.make_function(_DOMAIN, self._name, inputs, outputs, nodes, [helper.make_opsetid("", opset)])

    def _source(self, shape: Sequence[int | str]) -> int:
        """The input whose length determines that of a result with a dynamic dimension."""
        symbol = next(size for size in shape if isinstance(size, str))
        for index, own in enumerate(self._shapes):
            if symbol in own and _fixed(own):
                return index
        raise self._refused(f"the size {symbol!r} of a result is not a size of any input", "export it with fixed sizes")


def _fixed(shape: Sequence[int | str]) -> int:
    """The product of the known sizes."""
    sizes: list[int] = [size for size in shape if isinstance(size, int)]
    return math.prod(sizes)


def _open(shape: Sequence[int | str]) -> list[int]:
    return [size if isinstance(size, int) else -1 for size in shape]


def _constant(name: str, values: list[int]) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value_ints=values)
