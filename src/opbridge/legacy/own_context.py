"""Runs symbolic functions on our own graph: the same protocol as TorchScript's, in plain Python."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from opbridge.legacy import own_inference, torchscript
from opbridge.legacy.constants import SCALAR_TYPES, is_numbers, number
from opbridge.legacy.folding import fold_constants
from opbridge.legacy.fragment import Fragment, Slot, TensorInput, restore_inputs
from opbridge.legacy.own_convert import to_model
from opbridge.legacy.own_graph import Block, Graph, Node, Value
from opbridge.legacy.own_types import DeviceObjType, ListType, NoneType, TensorType
from opbridge.legacy.target import Target
from opbridge.legacy.validity import check_node

__all__ = ["Context", "build"]

_ATTRIBUTE = re.compile(r"(.+)_([ifstgz])")


@dataclasses.dataclass
class Context:
    """The ``g`` of a symbolic function.

    Attributes:
        graph: What is being built.
        block: The block that nodes are added to.
        opset: The opset to write for.
        original_node: The node that the symbolic stands for.
        functions: The functions that :meth:`onnxscript_op` called.
        new_nodes: Every node that was added, in order.
    """

    graph: Graph
    block: Block
    opset: int
    original_node: Node
    functions: list[ir.Function] = dataclasses.field(default_factory=list)
    new_nodes: list[Node] = dataclasses.field(default_factory=list)
    params_dict: dict[str, Any] = dataclasses.field(default_factory=dict)
    env: dict[Any, Any] = dataclasses.field(default_factory=dict)
    values_in_env: set[Any] = dataclasses.field(default_factory=set)

    def op(self, opname: str, *raw_args: Any, outputs: int = 1, **kwargs: Any) -> Any:
        """Add a node.

        Args:
            opname: "Add", or "domain::Op".
            raw_args: Values; None for an optional input; a tensor or number becomes a constant.
            outputs: How many values it makes.
            kwargs: Attributes, whose names end in ``_i _f _s _t _g`` by their kind; None leaves one out.

        Returns:
            The value, or a tuple of them.

        Raises:
            ValueError: An attribute has no kind.
        """
        inputs = [self._value(arg) for arg in raw_args]
        kind = opname if "::" in opname else f"onnx::{opname}"
        node = self.block.addNode(kind, inputs)
        for _ in range(outputs - 1):
            node.addOutput()
        for name, value in sorted(kwargs.items()):
            if value is not None and name not in ("inplace", "aten"):
                self._set(node, name, value)
        self.new_nodes.append(node)
        own_inference.infer(node, self.opset)
        return node.output() if outputs == 1 else tuple(node.outputs())

    def _value(self, arg: Any) -> Any:
        return arg if arg is None or isinstance(arg, Value) else self.op("Constant", value_t=torch.as_tensor(arg))

    def _set(self, node: Node, name: str, value: Any) -> None:
        found = _ATTRIBUTE.fullmatch(name)
        if found is None:
            raise ValueError(f"Invalid attribute specifier '{name}': names end in the type, as in 'dim_i' or 'dims_i'")
        several = not isinstance(value, (str, bytes, torch.Tensor)) and isinstance(value, (Sequence, torch.Size))
        node.set(found[1], found[2] + "s" * several, value)

    def aten_op(self, operator: str, *args: Any, overload_name: str = "", **kwargs: Any) -> Any:
        """Add a node that stands for an operator of torch."""
        return self.op("aten::ATen", *args, operator_s=operator, overload_name_s=overload_name, **kwargs)

    at = aten_op

    def onnxscript_op(self, onnx_fn: Any, *raw_args: Any, outputs: int = 1, **kwargs: Any) -> Any:
        """Add a call of an onnxscript function."""
        self.functions.append(ir.serde.deserialize_function(onnx_fn.to_function_proto()))
        return self.op(f"{onnx_fn.opset.domain}::{onnx_fn.name}", *raw_args, outputs=outputs, **kwargs)

    def constant(self, item: Any) -> Value:
        """A value that no ONNX node makes: None, or a device."""
        node = self.block.addNode("prim::Constant", [])
        node.output().setType(NoneType() if item is None else DeviceObjType())
        if item is not None:
            node.set("value", "s", str(item))
        return node.output()

    def list_of(self, parts: Sequence[Value], element: Any) -> Value:
        """A list of values."""
        node = self.block.addNode("prim::ListConstruct", parts)
        return node.output().setType(ListType(element))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.graph, name)


def build(
    symbolic: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    inputs: Sequence[TensorInput],
    opset: int,
    target: Target,
    registered: bool,
) -> Fragment:
    """Run a symbolic function on our own graph. See :func:`opbridge.legacy.torchscript.build`."""
    graph = Graph()
    values = [graph.addInput(f"input_{index}").setType(_type(given)) for index, given in enumerate(inputs)]
    context = Context(graph, graph.block(), opset, graph.param_node())
    with torchscript.settings(opset, target) if torchscript.available() else contextlib.nullcontext():
        known = [_known(context, value, given) for value, given in zip(values, inputs, strict=True)]
        convert = _as_graph_value if registered else _as_given
        results = symbolic(
            context,
            *(convert(context, item, known) for item in args),
            **{name: convert(context, item, known) for name, item in kwargs.items()},
        )
    for node in graph.all_nodes():
        check_node(node.kind(), node.inputs(), node.attributeNames(), opset, has_blocks=bool(node.blocks()))
    returned, several = _returned(results)
    for value in returned:
        if value is not None:
            graph.registerOutput(value)
    own_inference.cast_arguments(graph, opset)
    model = to_model(graph, opset, target)
    if target.constant_folding:
        fold_constants(model)
    copies = {made.debugName(): index for index, made in enumerate(known) if made is not values[index]}
    restore_inputs(model, [value.debugName() for value in values], copies)
    for function in context.functions:
        model.functions[function.identifier()] = function
    positions = iter(range(len(returned)))
    return Fragment(model, tuple(None if value is None else next(positions) for value in returned), several)


def _type(given: TensorInput) -> TensorType:
    dtype = None if given.dtype is None else ir.tensor_adapters.to_torch_dtype(given.dtype)
    return TensorType(dtype, given.shape)


def _known(context: Context, value: Value, given: TensorInput) -> Value:
    return value if given.constant is None else context.op("Constant", value_t=given.constant)


def _as_given(context: Context, item: Any, values: Sequence[Value]) -> Any:
    if isinstance(item, Slot):
        return values[item.index]
    if isinstance(item, dict):
        return {key: _as_given(context, part, values) for key, part in item.items()}
    if type(item) in (list, tuple):
        return type(item)(_as_given(context, part, values) for part in item)
    return item


def _as_graph_value(context: Context, item: Any, values: Sequence[Value]) -> Value:
    if isinstance(item, Slot):
        return values[item.index]
    if item is None or isinstance(item, torch.device):
        return context.constant(item)
    if isinstance(item, str):
        return context.op("Constant", value_s=item)
    if isinstance(item, torch.dtype):
        item = SCALAR_TYPES.index(item)
    if isinstance(item, (list, tuple)) and not is_numbers(item):
        strings = any(isinstance(part, str) for part in item)
        return context.list_of(
            [_as_graph_value(context, part, values) for part in item], "str" if strings else TensorType()
        )
    return context.op("Constant", value_t=item if isinstance(item, torch.Tensor) else number(item))


def _returned(results: Any) -> tuple[list[Any], bool]:
    several = isinstance(results, (list, tuple))
    return list(_unpacked(results if several else [results], several)), several or _is_list(results)


def _is_list(value: Any) -> bool:
    return isinstance(value, Value) and value.node().kind() == "prim::ListConstruct"


def _unpacked(results: Sequence[Any], several: bool) -> Iterator[Any]:
    for value in results:
        if _is_list(value):
            yield from value.node().inputs()
        elif isinstance(value, Value) or (several and value is None):
            yield value
        else:
            raise TypeError(f"it returns {type(value).__name__} where a value of the graph is expected")
