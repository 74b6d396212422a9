"""The graph of a TorchScript module as Python source, which torch.export captures as it captures any module.

A TorchScript graph holds data types, memory formats and layouts as numbers. Its operators are called by their overloads
(``torch.ops.aten.add.Tensor``); those on numbers, lists and strings are Python's own.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["NAMESPACE", "PythonSource", "Untranslatable", "literal", "python_source"]


class Untranslatable(Exception):
    """A node has no counterpart in Python; the text says which."""


@dataclasses.dataclass(frozen=True)
class PythonSource:
    """The source of a function, and the constants that it reads as attributes of its first argument.

    Attributes:
        text: The source of the function.
        constants: Tensors, devices and other constants, by the name of the attribute.
    """

    text: str
    constants: Mapping[str, Any]


def python_source(graph: Any, parameters: Sequence[str], name: str = "forward") -> PythonSource:
    """The function that computes what an inlined TorchScript graph computes.

    Args:
        graph: ``inlined_graph`` of a method; its first input is the module.
        parameters: The other parameters of the function, with their defaults: ``"x"``, ``"y=None"``.
        name: The name of the function, with which the names of its constants begin.

    Raises:
        Untranslatable: The graph has a node without a counterpart in Python.
    """
    names = ["self", *(parameter.partition("=")[0] for parameter in parameters)]
    if not NAMESPACE.keys().isdisjoint(names):
        raise Untranslatable(f"a parameter has one of the names {', '.join(NAMESPACE)}")
    writer = _Writer(name, names)
    for value, given in zip(graph.inputs(), names, strict=True):
        writer.names[value.debugName()] = given
    writer.nodes(graph.nodes(), 1)
    results = ", ".join(writer.name(value) for value in graph.outputs())
    lines = [f"def {name}({', '.join(['self', *parameters])}):", *writer.lines, f"    return {results}", ""]
    return PythonSource("\n".join(lines), writer.constants)


class _Writer:
    """Writes one line for each node."""

    def __init__(self, function: str, taken: Collection[str]) -> None:
        self._function = function
        self._free = (name for number in itertools.count(1) if (name := f"v{number}") not in taken)
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self.constants: dict[str, Any] = {}
        self._numbers: dict[str, str] = {}
        """The numbers of tensors that a trace makes of sizes, to compute with them and to read them again."""

    def name(self, value: Any) -> str:
        name = value.debugName()
        if name not in self.names:
            self.names[name] = next(self._free)
        return self.names[name]

    def nodes(self, nodes: Iterable[Any], depth: int) -> None:
        for node in nodes:
            self._node(node, depth)

    def _write(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def _node(self, node: Any, depth: int) -> None:
        kind, inputs = node.kind(), [self.name(value) for value in node.inputs()]
        match kind:
            case "prim::Constant":
                self.names[node.output().debugName()] = self._constant(node.output().toIValue())
            case "prim::GetAttr" if node.output().type().kind() == "ClassType":
                self.names[node.output().debugName()] = _attribute(inputs[0], node.s("name"))
            case "prim::GetAttr":
                self._write(depth, f"{self.name(node.output())} = {_attribute(inputs[0], node.s('name'))}")
            case "prim::SetAttr":
                self._write(depth, f"{inputs[0]}.{node.s('name')} = {inputs[1]}")
            case "prim::If":
                self._branches(node, inputs[0], depth)
            case "prim::Loop":
                self._loop(node, inputs, depth)
            case "prim::RaiseException":
                self._write(depth, f"raise RuntimeError({inputs[0]})")
            case "prim::TupleUnpack" | "prim::ListUnpack" if node.outputsSize():
                self._write(depth, f"{''.join(f'{self.name(one)}, ' for one in node.outputs())}= {inputs[0]}")
            case "aten::warn" | "prim::Print" | "prim::TupleUnpack" | "prim::ListUnpack":
                pass
            case _ if (number := self._number_of(node, kind, inputs)) is not None:
                result = self.name(node.output())
                self._write(depth, f"{result} = {number}")
                if kind not in _READS:
                    self._numbers[node.output().debugName()] = result
                    self.names[node.output().debugName()] = f"torch.as_tensor({result})"
            case _:
                results = ", ".join(self.name(value) for value in node.outputs())
                called = self._expression(node, kind, inputs)
                self._write(depth, f"{results} = {called}" if results else called)

    def _number_of(self, node: Any, kind: str, inputs: list[str]) -> str | None:
        """The number that a node makes a tensor of, computes with as a tensor, or reads from one."""
        if kind == "prim::NumToTensor":
            return inputs[0]
        known = [self._numbers.get(value.debugName()) for value in node.inputs()]
        if kind in _READS:
            return known[0]
        if kind not in _EXACT or not any(known) or inputs[2:] not in ([], ["1"]):
            return None
        left, right = (number or _literal(value) for number, value in list(zip(known, node.inputs(), strict=True))[:2])
        return None if left is None or right is None else f"{left} {_EXACT[kind]} {right}"

    def _constant(self, value: Any) -> str:
        text = literal(value)
        if text is not None:
            return text
        name = f"{self._function}_constant_{len(self.constants)}"
        self.constants[name] = value
        return f"self.{name}"

    def _branches(self, node: Any, condition: str, depth: int) -> None:
        for head, block in zip((f"if {condition}:", "else:"), node.blocks(), strict=True):
            self._write(depth, head)
            self.nodes(block.nodes(), depth + 1)
            self._assign(node.outputs(), block.outputs(), depth + 1)

    def _assign(self, targets: Iterable[Any], values: Iterable[Any], depth: int) -> None:
        """Assign at once: a value may be the former one of another target."""
        pairs = [(self.name(target), self.name(value)) for target, value in zip(targets, values, strict=True)]
        left, right = ([pair[side] for pair in pairs] for side in (0, 1))
        self._write(depth, f"{', '.join(left)} = {', '.join(right)}" if pairs else "pass")

    def _loop(self, node: Any, inputs: list[str], depth: int) -> None:
        """``for`` if the condition is always true, ``while`` if the number of iterations is not limited."""
        (block,) = node.blocks()
        counter, *carried = block.inputs()
        proceeds, *results = block.outputs()
        count, condition = inputs[:2]
        self._assign(carried, list(node.inputs())[2:], depth)
        number = self.name(counter)
        always = condition == "True" and _is_true(proceeds)
        if always:
            self._write(depth, f"for {number} in range({count}):")
        else:
            going = f"going_{number}"
            limit = "" if count.isdigit() and int(count) >= 2**31 - 1 else f" and {number} < {count}"
            self._write(depth, f"{going}, {number} = {condition}, 0")
            self._write(depth, f"while {going}{limit}:")
        self.nodes(block.nodes(), depth + 1)
        if not always:
            self._write(depth + 1, f"{going}, {number} = {self.name(proceeds)}, {number} + 1")
        self._assign(carried, results, depth + 1)
        self._assign(node.outputs(), carried, depth)

    def _expression(self, node: Any, kind: str, inputs: list[str]) -> str:
        if kind in _FORMS:
            return _FORMS[kind](inputs)
        namespace, _, name = kind.partition("::")
        found = re.match(r"(\w+)::(\w+)(?:\.(\w+))?\(", node.schema() if node.schema() != "(no schema)" else "")
        if found is None:
            raise Untranslatable(kind)
        packet = getattr(getattr(torch.ops, namespace), name, None)
        overload = getattr(packet, found[3] or "default", None)
        arguments = overload._schema.arguments if overload is not None else ()
        if name in _PYTHON and not any("Tensor" in str(one.type) for one in arguments):
            return _PYTHON[name](inputs)
        # A list that an operator changes would be a copy of the one in Python.
        if overload is None or any(_is_written(one) and "List" in str(one.type) for one in arguments):
            raise Untranslatable(kind)
        given = [_given(argument, text) for argument, text in zip(arguments, inputs, strict=True)]
        return f"torch.ops.{namespace}.{name}.{overload._overloadname}({', '.join(given)})"


def literal(value: Any) -> str | None:
    """The source of a constant; None if Python has no literal for it."""
    is_finite = isinstance(value, float) and math.isfinite(value)
    return repr(value) if value is None or isinstance(value, bool | int | str) or is_finite else None


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _literal(value: Any) -> str | None:
    """The source of a constant number, which may be a tensor; None for anything else."""
    constant = value.toIValue() if value.node().kind() == "prim::Constant" else None
    if isinstance(constant, torch.Tensor) and constant.dim() == 0:
        constant = constant.item()
    return repr(constant) if isinstance(constant, int) else None


def _attribute(owner: str, name: str) -> str:
    return f"{owner}.{name}" if name.isidentifier() else f"getattr({owner}, {name!r})"


def _is_true(value: Any) -> bool:
    node = value.node()
    return node.kind() == "prim::Constant" and value.toIValue() is True


def _given(argument: Any, text: str) -> str:
    """An argument of an operator, by keyword if it has to be; numbers that stand for something else are looked up."""
    kind = str(argument.real_type)
    for table in _TABLES:
        if table in kind:
            text = f"{table}_of({text})"
    return f"{argument.name}={text}" if argument.kwarg_only else text


def _joined(form: str) -> Callable[[list[str]], str]:
    return lambda inputs: form.format(*inputs, all=", ".join(inputs), listed="".join(f"{one}, " for one in inputs))


_FORMS: dict[str, Callable[[list[str]], str]] = {
    **{
        kind: _joined(form)
        for kind, form in {
            "prim::ListConstruct": "[{all}]",
            "prim::TupleConstruct": "({listed})",
            "prim::TupleIndex": "{0}[{1}]",
            "prim::unchecked_cast": "{0}",
            "prim::data": "{0}.detach()",
            "prim::device": "{0}.device",
            "prim::dtype": "code_of({0}.dtype)",
            "prim::is_cuda": "{0}.is_cuda",
            "prim::min": "min({all})",
            "prim::max": "max({all})",
            "prim::tolist": "{0}.tolist()",
            "aten::size": "list_of_sizes({all})",
            "aten::dim": "{0}.dim()",
            "aten::len": "length_of({0})",
            "aten::numel": "{0}.numel()",
            "aten::Int": "int({0})",
            "aten::IntImplicit": "int({0})",
            "aten::Float": "float({0})",
            "aten::FloatImplicit": "float({0})",
            "aten::Bool": "bool({0})",
            "aten::ScalarImplicit": "{0}.item()",
            "aten::item": "{0}.item()",
            "aten::tensor": "torch.tensor({0}, dtype=ScalarType_of({1}), device={2})",
            "aten::as_tensor": "torch.as_tensor({0}, dtype=ScalarType_of({1}), device={2})",
            "aten::__is__": "{0} is {1}",
            "aten::__isnot__": "{0} is not {1}",
            "aten::__not__": "not {0}",
        }.items()
    },
    "prim::Uninitialized": lambda inputs: "None",
    "aten::format": lambda inputs: f"{inputs[0]}.format({', '.join(inputs[1:])})",
    "prim::requires_grad": lambda inputs: "False",
    "prim::DictConstruct": lambda inputs: (
        "{" + ", ".join(f"{key}: {value}" for key, value in zip(inputs[::2], inputs[1::2], strict=True)) + "}"
    ),
    # Weights in oneDNN's layout become plain ones, which have no operators of their own.
    "aten::mkldnn_convolution": lambda inputs: (
        "torch.ops.aten.convolution.default({0}, {1}, {2}, {4}, {3}, {5}, False, [0] * len({3}), {6})".format(*inputs)
    ),
    "aten::mkldnn_linear": lambda inputs: f"torch.ops.aten.linear.default({', '.join(inputs)})",
    "aten::to_mkldnn": lambda inputs: inputs[0],
    "aten::to_dense": lambda inputs: inputs[0],
    # What a trace calls has further arguments, about cuDNN.
    "aten::_convolution": lambda inputs: f"torch.ops.aten.convolution.default({', '.join(inputs[:9])})",
}

_READS = {"aten::Int", "aten::IntImplicit", "aten::ScalarImplicit", "aten::item"}
_EXACT = {"aten::add": "+", "aten::sub": "-", "aten::mul": "*", "aten::floor_divide": "//", "aten::remainder": "%"}

_PYTHON: dict[str, Callable[[list[str]], str]] = {
    name: _joined(form)
    for name, form in {
        **{name: f"{{0}} {sign} {{1}}" for name, sign in {
            "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "remainder": "%", "pow": "**", "eq": "==",
            "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "__and__": "&", "__or__": "|", "__xor__": "^",
        }.items()},
        **{name: f"math.{name}({{all}})" for name in ("ceil", "floor", "sqrt", "log", "exp")},
        "neg": "-{0}", "abs": "abs({0})", "round": "round({0})",
        "__getitem__": "{0}[{1}]", "__contains__": "{1} in {0}", "slice": "{0}[{1}:{2}:{3}]",
        "append": "{0}.append({1})", "extend": "{0}.extend({1})", "insert": "{0}.insert({1}, {2})",
        "pop": "{0}.pop({1})", "reverse": "{0}.reverse()", "clear": "{0}.clear()",
        "copy": "{0}.copy()", "list": "list({0})",
        "_set_item": "{0}.__setitem__({1}, {2})", "keys": "list({0}.keys())", "values": "list({0}.values())",
        "items": "list({0}.items())", "get": "dict.get({all})", "str": "str({0})",
        "__range_length": "len(range({0}, {1}, {2}))", "__derive_index": "{1} + {0} * {2}",
    }.items()
}  # fmt: skip
"""Operators on numbers, lists and strings."""

_DTYPES = {
    number: getattr(torch, name)
    for number, name in {
        **dict(enumerate(("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"))),
        8: "complex32",
        9: "complex64",
        10: "complex128",
        11: "bool",
        15: "bfloat16",
    }.items()
}
_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
_CODES = {dtype: number for number, dtype in _DTYPES.items()}
_TABLES = ("ScalarType", "MemoryFormat", "Layout")


def _dtype_of(number: int | None) -> torch.dtype | None:
    return None if number is None else _DTYPES[number]


def _format_of(number: int | None) -> torch.memory_format | None:
    return None if number is None else _FORMATS[number]


def _list_of_sizes(tensor: torch.Tensor, axis: int | None = None) -> Any:
    return list(tensor.shape) if axis is None else tensor.shape[axis]


def _length_of(value: Any) -> Any:
    return value.shape[0] if isinstance(value, torch.Tensor) else len(value)


NAMESPACE: Mapping[str, Any] = {
    "torch": torch,
    "math": math,
    "ScalarType_of": _dtype_of,
    "MemoryFormat_of": _format_of,
    "Layout_of": lambda number: None,
    "code_of": _CODES.__getitem__,
    "list_of_sizes": _list_of_sizes,
    "length_of": _length_of,
}
"""The names that the source needs."""
