"""Computes a node in a wider type if the engine has a kernel for the operator but not for the element type."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from opbridge.engines.base import Engine
from opbridge.engines.probe import probe
from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.infer import fill_types
from opbridge.onnx_model.names import describe_node
from opbridge.onnx_model.opsets.building import Names
from opbridge.onnx_model.scopes import scopes

if TYPE_CHECKING:
    from onnx_ir import DataType, Model, Node, Value

    from opbridge.kernels.library import KernelOperator

__all__ = ["CastAroundMissingTypesPass"]

_D = ir.DataType
# The wide type represents every value of the narrow type. Integers wrap around in the same way when they are cast back.
_WIDER: dict[DataType, tuple[DataType, ...]] = {
    _D.BOOL: (_D.UINT8, _D.INT32, _D.INT64),
    _D.INT8: (_D.INT32, _D.INT64),
    _D.UINT8: (_D.INT32, _D.UINT32, _D.INT64),
    _D.INT16: (_D.INT32, _D.INT64),
    _D.UINT16: (_D.INT32, _D.UINT32, _D.INT64),
    _D.INT32: (_D.INT64,),
    _D.UINT32: (_D.INT64, _D.UINT64),
    _D.FLOAT16: (_D.FLOAT, _D.DOUBLE),
    _D.BFLOAT16: (_D.FLOAT, _D.DOUBLE),
    _D.FLOAT: (_D.DOUBLE,),
}
# The results of these operators depend on the width of the type.
_WIDTH_MATTERS = frozenset(
    {"BitCast", "Cast", "CastLike", "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"}
)


ORDER = 30


def for_engine(model: Model, engine: Engine, kernels: Sequence[KernelOperator]) -> CastAroundMissingTypesPass | None:
    """The pass if the engine refuses a node of the model. The bodies of nodes with kernels must run too."""
    return CastAroundMissingTypesPass(engine) if probe(model, engine) else None


class CastAroundMissingTypesPass(ir.passes.InPlacePass):
    """Insert lossless widening casts before, and casts back after, standard nodes refused only for their types.

    The engine decides whether a wider type helps. Types are never narrowed, so a float64 node without a kernel stays
    refused. Nodes in subgraphs are included, and nodes in function bodies if their types are known.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    def call(self, model: Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the nodes that now compute in another type."""
        fill_types(model)
        names = Names(model)
        done: dict[tuple[str, str], list[str]] = {}
        for scope in scopes(model):
            for node in list(scope.all_nodes()):
                refusal = None if _is_exempt(node) else self._engine.supports(node, scope.opset_imports)
                if refusal is None:
                    continue
                widening = self._find(node, scope.opset_imports, refusal.missing_dtypes)
                if widening is not None:
                    done.setdefault((refusal.operator, widening.describe()), []).append(describe_node(node))
                    widening.apply(node, names)
        adaptations = tuple(
            Adaptation(f"{operator} {types}", tuple(nodes), operator) for (operator, types), nodes in done.items()
        )
        return AdaptationResult(model, bool(adaptations), adaptations)

    def _find(self, node: Node, opset_imports: Mapping[str, int], missing: tuple[str, ...]) -> _Widening | None:
        """The first widening with which the engine accepts the node; None if there is none."""
        try:
            schema = onnx.defs.get_schema(node.op_type, opset_imports[""], "")
        except onnx.defs.SchemaError:
            return None
        present = dict.fromkeys(value.dtype for value in (*node.inputs, *node.outputs) if value is not None)
        narrow = [dtype for dtype in present if dtype in _WIDER and (not missing or dtype.numpy().name in missing)]
        for wide in itertools.product(*(_WIDER[dtype] for dtype in narrow)):
            widening = _widening(node, schema, dict(zip(narrow, wide, strict=True)))
            if widening is not None and self._engine.supports(widening.question(node), opset_imports) is None:
                return widening
        return None


def _is_exempt(node: Node) -> bool:
    graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    has_subgraph = any(attribute.type in graphs for attribute in node.attributes.values())
    return bool(node.domain or has_subgraph or node.op_type in _WIDTH_MATTERS)


@dataclasses.dataclass(frozen=True)
class _Widening:
    """The wider types of the values of a node.

    Attributes:
        dtypes: The wide type of each narrow type.
        inputs: The positions of the inputs that are cast.
        outputs: The positions of the outputs that are cast back.
    """

    dtypes: Mapping[DataType, DataType]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def describe(self) -> str:
        pairs = [f"{wide.numpy().name} instead of {narrow.numpy().name}" for narrow, wide in self.dtypes.items()]
        return f"computes in {', '.join(pairs)}"

    def question(self, node: Node) -> Node:
        """A detached copy of the node in the wide type."""
        inputs = [
            self._wide_value(value, f"x{position}") if position in self.inputs and value is not None else value
            for position, value in enumerate(node.inputs)
        ]
        outputs = [
            self._wide_value(value, value.name)
            if position in self.outputs
            else ir.Value(name=value.name, type=value.type, shape=value.shape)
            for position, value in enumerate(node.outputs)
        ]
        attributes = {**node.attributes, **self._attributes(node)}
        return ir.Node("", node.op_type, inputs, attributes.values(), outputs=outputs, version=node.version)

    def apply(self, node: Node, names: Names) -> None:
        """Change the node in its graph."""
        casts: dict[Value, Value] = {}
        for position in self.inputs:
            value = node.inputs[position]
            if value not in casts:
                wide = self._wide_value(value, names.fresh(f"{value.name}_{self._wide(value).numpy().name}"))
                node.graph.insert_before(node, _cast(value, wide, node, names))
                casts[value] = wide
            node.replace_input_with(position, casts[value])
        for position in self.outputs:
            self._restore(node, node.outputs[position], names)
        for attribute in self._attributes(node).values():
            node.attributes[attribute.name] = attribute

    def _restore(self, node: Node, output: Value, names: Names) -> None:
        restored = ir.Value(
            name=output.name, type=output.type, shape=output.shape, metadata_props=dict(output.metadata_props)
        )
        output.name = names.fresh(f"{output.name}_{self._wide(output).numpy().name}")
        output.replace_all_uses_with(restored, replace_graph_outputs=True)
        output.type = ir.TensorType(self._wide(output))
        node.graph.insert_after(node, _cast(output, restored, node, names))

    def _wide(self, value: Value) -> DataType:
        return self.dtypes[value.dtype]

    def _wide_value(self, value: Value, name: str | None) -> Value:
        return ir.Value(name=name, type=ir.TensorType(self._wide(value)), shape=value.shape)

    def _attributes(self, node: Node) -> dict[str, Any]:
        """The attributes that state an output's type: a type number (``dtype``) or a tensor (``value``)."""
        changed = {}
        dtype = node.attributes.get("dtype")
        if dtype is not None and not dtype.is_ref() and ir.DataType(dtype.as_int()) in self.dtypes:
            changed["dtype"] = ir.AttrInt64("dtype", int(self.dtypes[ir.DataType(dtype.as_int())]))
        value = node.attributes.get("value")
        if value is not None and value.type == ir.AttributeType.TENSOR and value.as_tensor().dtype in self.dtypes:
            tensor = value.as_tensor()
            wide = self.dtypes[tensor.dtype]
            changed["value"] = ir.AttrTensor("value", ir.tensor(tensor.numpy().astype(wide.numpy()), dtype=wide))
        return changed


def _widening(node: Node, schema: Any, dtypes: Mapping[DataType, DataType]) -> _Widening | None:
    """The values whose type variable allows the wide type; None if there is no such value."""
    allowed = {item.type_param_str: item.allowed_type_strs for item in schema.type_constraints}

    def positions(values: Any, formals: Any) -> Iterator[int]:
        for position, value in enumerate(values):
            if value is None or not formals or not isinstance(value.type, ir.TensorType):
                continue
            wide = dtypes.get(value.dtype)
            variable = formals[min(position, len(formals) - 1)].type_str
            if wide is not None and f"tensor({_onnx_name(wide)})" in allowed.get(variable, ()):
                yield position

    inputs, outputs = tuple(positions(node.inputs, schema.inputs)), tuple(positions(node.outputs, schema.outputs))
    return _Widening(dtypes, inputs, outputs) if inputs or outputs else None


def _onnx_name(dtype: DataType) -> str:
    """The element type as operator schemas write it: "float", "int64"."""
    return str(dtype.name.lower())


def _cast(value: Value, result: Value, around: Node, names: Names) -> Node:
    """A Cast from one value to another, with the provenance of the neighbouring node."""
    return ir.Node(
        "",
        "Cast",
        [value],
        [ir.AttrInt64("to", int(result.dtype))],
        outputs=[result],
        name=names.fresh(f"{describe_node(around)}_cast"),
        metadata_props=dict(around.metadata_props),
    )
