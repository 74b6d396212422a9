"""Converts calls of ``symbolic_helper`` and ``symbolic_opsetN``, and of methods of the type of a value."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from opbridge.legacy.migrate.script import Script

__all__ = ["asked_of_a_type", "dtype_number", "helper_call"]

Arguments = dict[str | int, str]

_DTYPES = {
    "Byte": 2, "Char": 3, "Double": 11, "Float": 1, "Half": 10, "Int": 6, "Long": 7, "Short": 5, "Bool": 9,
    "BFloat16": 16,
}  # fmt: skip


def _get(found: Arguments, position: int, name: str, default: str = "") -> str:
    return found.get(position, found.get(name, default))


_HELPERS: dict[str, Callable[[Arguments], str]] = {
    "_unsqueeze_helper": lambda a: f"op.Unsqueeze({_get(a, 1, 'input')}, {_get(a, 2, 'axes_i')})",
    "_squeeze_helper": lambda a: f"op.Squeeze({_get(a, 1, 'input')}, {_get(a, 2, 'axes_i')})",
    "_reshape_helper": lambda a: f"op.Reshape({_get(a, 1, 'input')}, {_get(a, 2, 'shape')})",
    "_reducesum_helper": lambda a: (
        f"op.ReduceSum({_get(a, 1, 'input')}, {_get(a, 2, 'axes_i')}, keepdims={_get(a, 3, 'keepdims_i', '1')})"
    ),
    "_slice_helper": lambda a: (
        f"op.Slice({_get(a, 1, 'input')}, {_get(a, 3, 'starts')}, {_get(a, 4, 'ends')}, {_get(a, 2, 'axes')})"
    ),
    "_topk_helper": lambda a: (
        f"op.TopK({_get(a, 1, 'input')}, [{_get(a, 2, 'k')}], axis={_get(a, 3, 'dim')}, "
        f"largest=int({_get(a, 4, 'largest', '1')}), sorted=int({_get(a, 5, 'sorted', '0')}))"
    ),
    "_shape_as_tensor": lambda a: f"op.Shape({_get(a, 1, 'input')})",
    "_maybe_get_const": lambda a: _get(a, 0, "value"),
    "_get_const": lambda a: _get(a, 0, "value"),
    "_maybe_get_scalar": lambda a: _get(a, 0, "value"),
    "_unpack_list": lambda a: _get(a, 0, "list_value"),
    "_is_none": lambda a: f"({_get(a, 0, 'x')} is None)",
    "_get_tensor_rank": lambda a: f"len({_get(a, 0, 'x')}.shape)",
    "_get_tensor_sizes": lambda a: f"[*{_get(a, 0, 'x')}.shape]",
    "_get_tensor_dim_size": lambda a: f"{_get(a, 0, 'x')}.shape[{_get(a, 1, 'dim')}]",
    "_is_fp": lambda a: f"{_get(a, 0, 'value')}.dtype.is_floating_point()",
}

_ONE_NODE = {
    "relu": "Relu", "mul": "Mul", "neg": "Neg", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "abs": "Abs",
    "sigmoid": "Sigmoid", "tanh": "Tanh", "sin": "Sin", "cos": "Cos", "floor": "Floor", "ceil": "Ceil", "erf": "Erf",
    "reciprocal": "Reciprocal", "matmul": "MatMul", "maximum": "Max", "minimum": "Min", "clamp": "Clip",
}  # fmt: skip
"""The functions of symbolic_opsetN that always emit a single node of their inputs."""


def helper_call(path: str, call: cst.Call) -> cst.BaseExpression | None:
    """Return the replacement of a call of a helper; None if it has none."""
    name = path.rpartition(".")[2]
    if any(argument.star for argument in call.args):
        return None
    code = cst.Module([]).code_for_node
    arguments: Arguments = {}
    for position, argument in enumerate(call.args):
        arguments[argument.keyword.value if argument.keyword else position] = code(argument.value)
    if name in ("unused", "_optional_input_placeholder_tensor"):
        return cst.Name("None")
    if name in _HELPERS:
        return cst.parse_expression(_HELPERS[name](arguments))
    inputs = [arguments[position] for position in range(1, len(call.args)) if position in arguments]
    if len(inputs) != len(call.args) - 1:
        return None
    if name in _ONE_NODE:
        return cst.parse_expression(f"op.{_ONE_NODE[name]}({', '.join(inputs)})")
    if name in ("add", "sub") and len(inputs) == 2:
        return cst.parse_expression(f"op.{name.title()}({', '.join(inputs)})")
    if name == "softmax" and len(inputs) == 2:
        return cst.parse_expression(f"op.Softmax({inputs[0]}, axis={inputs[1]})")
    return None


def imports_helpers(script: Script, statement: cst.Import | cst.ImportFrom) -> bool:
    """Return whether a statement only imports symbolic helpers of torch.onnx, which a translation does not call."""
    if isinstance(statement.names, cst.ImportStar):
        return False
    owner = ""
    if isinstance(statement, cst.ImportFrom):
        owner = f"{script.code(statement.module)}." if statement.module is not None else ""
    return all(f"{owner}{script.code(item.name)}".startswith("torch.onnx.symbolic") for item in statement.names)


def dtype_number(script: Script, node: cst.Subscript) -> cst.BaseExpression | None:
    """Convert ``cast_pytorch_to_onnx["Long"]`` to the number of the ONNX element type."""
    if not script.path(node.value).endswith(".cast_pytorch_to_onnx") or len(node.slice) != 1:
        return None
    key = node.slice[0].slice
    if isinstance(key, cst.Index) and isinstance(key.value, cst.SimpleString):
        number = _DTYPES.get(str(key.value.evaluated_value))
        return None if number is None else cst.Integer(str(number))
    return None


def asked_of_a_type(script: Script, original: cst.Call, updated: cst.Call) -> cst.BaseExpression | None:
    """Convert methods of ``x.type()`` to ``x.shape`` and ``x.dtype``; ``x.type()`` itself is returned unchanged."""
    function, asked = original.func, updated.func
    if not isinstance(function, cst.Attribute) or not isinstance(asked, cst.Attribute):
        return None
    if function.attr.value == "type" and not original.args:
        return updated
    inner = asked.value
    if not (isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute) and inner.func.attr.value == "type"):
        return None
    value = cst.Module([]).code_for_node(inner.func.value)
    if function.attr.value == "sizes":
        return cst.parse_expression(f"[*{value}.shape]")
    if function.attr.value == "scalarType":
        script.needs |= {"ir", "scalar_types"}
        return cst.parse_expression(f"SCALAR_TYPES[{value}.dtype]")
    if function.attr.value == "dim":
        return cst.parse_expression(f"len({value}.shape)")
    return None
