"""Casts to a wider type around a node whose element type the other opset does not support."""

from __future__ import annotations

import onnx_ir as ir

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.schemas import allowed_types, find_schema, formals, mistyped, type_name
from opbridge.onnx_model.opsets.site import Site

__all__ = ["widen"]

_D = ir.DataType
_FLOATS = (_D.FLOAT, _D.DOUBLE)
_INTEGERS = (_D.INT32, _D.INT64)
# The wider types that represent every value of a type.
_WIDER: dict[ir.DataType, tuple[ir.DataType, ...]] = {
    _D.BOOL: (_D.UINT8, *_INTEGERS, _D.FLOAT),
    _D.INT2: (_D.INT8, *_INTEGERS, _D.FLOAT),
    _D.INT4: (_D.INT8, *_INTEGERS, _D.FLOAT),
    _D.UINT2: (_D.UINT8, *_INTEGERS, _D.FLOAT),
    _D.UINT4: (_D.UINT8, *_INTEGERS, _D.FLOAT),
    _D.INT8: (*_INTEGERS, *_FLOATS),
    _D.UINT8: (*_INTEGERS, *_FLOATS),
    _D.INT16: (*_INTEGERS, *_FLOATS),
    _D.UINT16: (*_INTEGERS, *_FLOATS),
    _D.INT32: (_D.INT64, _D.DOUBLE),
    _D.UINT32: (_D.INT64, _D.UINT64, _D.DOUBLE),
    **dict.fromkeys((_D.FLOAT16, _D.BFLOAT16), _FLOATS),
    **dict.fromkeys(
        (_D.FLOAT8E4M3FN, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2, _D.FLOAT8E5M2FNUZ, _D.FLOAT4E2M1, _D.FLOAT8E8M0), _FLOATS
    ),
}
_ROUNDED = frozenset((_D.FLOAT16, _D.BFLOAT16))
# These operators only move, compare or select elements, so any type with the same values can be used.
_MOVES = frozenset(
    [
        "ArgMax",
        "ArgMin",
        "Compress",
        "Concat",
        "DepthToSpace",
        "Equal",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Greater",
        "GreaterOrEqual",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "Max",
        "MaxPool",
        "Min",
        "NonZero",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "ReverseSequence",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "TopK",
        "Transpose",
        "Unique",
        "Unsqueeze",
        "Where",
    ]
)
# Integer overflow wraps around, and casting the wide result back has the same effect.
_WRAPS = frozenset(["Abs", "Add", "Div", "Mul", "Sub"])
# The results of these operators depend on the width of the type.
_FIXED = frozenset(
    [
        "Bernoulli",
        "BitCast",
        "Cast",
        "CastLike",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "EyeLike",
        "If",
        "Loop",
        "Multinomial",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Scan",
    ]
)


def widen(site: Site) -> None:
    """Add casts around the node for element types that the target opset does not support.

    Raises:
        CannotExpress: There is no wider type that both opsets can cast to, or the result would differ.
    """
    node = site.node
    schema = find_schema(node.op_type, site.target)
    for variable in dict.fromkeys(item[3] for item in mistyped(node, schema)):
        narrow = next(item[2] for item in mistyped(node, schema) if item[3] == variable)
        wide = _wider(site, schema, variable, narrow)
        for position, value, formal in list(formals(node.inputs, schema.inputs)):
            if formal.type_str == variable and value.dtype is narrow.dtype:
                node.replace_input_with(position, site.op.cast(value, wide))
        for _, value, formal in list(formals(node.outputs, schema.outputs)):
            if formal.type_str == variable and value.name and value.dtype is narrow.dtype:
                cast_back(site, value, wide)


def cast_back(site: Site, output: ir.Value, wide: ir.DataType) -> None:
    """Change the type of an output to a wider type, and cast it back after the node."""
    node, narrow, name = site.node, output.dtype, output.name
    assert node.graph is not None
    assert narrow is not None
    restored = ir.Value(name=name, type=output.type, shape=output.shape, metadata_props=dict(output.metadata_props))
    output.name = site.op.fresh(f"{name}_{wide.name.lower()}")
    output.replace_all_uses_with(restored, replace_graph_outputs=True)
    output.type = ir.TensorType(wide)
    cast = ir.Node(
        "",
        "Cast",
        [output],
        [ir.AttrInt64("to", int(narrow))],
        outputs=[restored],
        name=site.op.fresh(f"{name}_cast"),
        version=site.target,
        metadata_props=dict(node.metadata_props),
    )
    node.graph.insert_after(node, cast)
    site.op.register(cast)


def _wider(site: Site, schema: object, variable: str, value: ir.Value) -> ir.DataType:
    narrow, operator = value.dtype, site.node.op_type
    name = type_name(value.type)
    short = name[len("tensor(") : -1] if name.startswith("tensor(") else name
    castable = allowed_types(find_schema("Cast", site.target), "T1")
    exact = operator in _MOVES or operator in _WRAPS or narrow in _ROUNDED
    if operator not in _FIXED and exact and narrow is not None and name in castable:
        for wide in _WIDER.get(narrow, ()):
            if operator in _WRAPS and narrow not in _ROUNDED and wide not in _INTEGERS:
                continue
            if type_name(ir.TensorType(wide)) in allowed_types(schema, variable) & castable:
                return wide
    if name not in castable:
        raise CannotExpress(f"opset {site.target} has no {short}")
    raise CannotExpress(f"{operator} of opset {site.target} does not take {short}")
