"""Builds the patterns to search for, graphs of an operator's body, and the nodes that replace them."""

from __future__ import annotations

import collections
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.passes.common import InlinePass

from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.operator import Operator
from opbridge.errors import InputError
from opbridge.ladder.plan import plan
from opbridge.ladder.translate import translate
from opbridge.onnx_model import infer
from opbridge.onnx_model.opsets import convert_opset
from opbridge.surgery.dimensions import size_of
from opbridge.surgery.matching import Match, is_reference
from opbridge.surgery.shapes import refine_shapes
from opbridge.surgery.template import Given, Pattern, Template
from opbridge.torch_graph import LOWEST_OPSET

__all__ = ["FunctionSource", "OperatorSource"]

_MOST_GUESSES = 6
_LARGEST_LIST = 64


_DTYPES = {
    ir.DataType.FLOAT: torch.float32,
    ir.DataType.DOUBLE: torch.float64,
    ir.DataType.FLOAT16: torch.float16,
    ir.DataType.BFLOAT16: torch.bfloat16,
    ir.DataType.INT8: torch.int8,
    ir.DataType.INT16: torch.int16,
    ir.DataType.INT32: torch.int32,
    ir.DataType.INT64: torch.int64,
    ir.DataType.UINT8: torch.uint8,
    ir.DataType.BOOL: torch.bool,
    ir.DataType.COMPLEX64: torch.complex64,
}


class OperatorSource:
    """A declared operator on example arguments.

    Args:
        operator: The operator.
        args: Example arguments; they may include values that are not tensors.
        opset: The opset of the model.
        catalog: The active declarations.
    """

    def __init__(self, operator: Operator, args: Sequence[Any], opset: int, catalog: Catalog) -> None:
        self.name = operator.target
        self._operator = operator
        self._opset = opset
        self._catalog = catalog
        signature = inspect.signature(operator.function)
        try:
            bound = signature.bind(*args)
        except TypeError as error:
            raise InputError(
                f"The example arguments do not fit {operator.target}: {error}.",
                fix=f"pass one for each parameter of {operator.__name__}{signature}.",
            ) from error
        bound.apply_defaults()
        self._leaves, self._structure = torch.utils._pytree.tree_flatten(tuple(bound.arguments.values()))

    def loosely(self) -> Pattern:
        """The body on the example arguments."""
        by_dtype = {dtype: key for key, dtype in _DTYPES.items()}
        tensors = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]
        given = [Given(by_dtype[tensor.dtype], tuple(tensor.shape)) for tensor in tensors]
        return self.exactly(given, self._numbers, {})

    @property
    def _numbers(self) -> tuple[Any, ...]:
        return tuple(filter(_is_number, self._leaves))

    def guesses(self, match: Match) -> Iterator[tuple[Any, ...]]:
        """Possible values of the number arguments for a match: the examples, or the numbers found in the graph."""
        options = [
            [number, *(found for found in _in_stead(number, match.constants) if found != number)][:_MOST_GUESSES]
            for number in self._numbers
        ]
        yield from sorted(itertools.product(*options), key=lambda chosen: chosen == self._numbers)

    def exactly(self, given: Sequence[Given], numbers: Sequence[Any], sizes: Mapping[str, int]) -> Pattern:
        """The body on inputs of these types and sizes, with these numbers for its other arguments.

        Args:
            given: The type and sizes of each tensor argument.
            numbers: The value of each number argument.
            sizes: The sizes of the named dimensions during capture.
        """
        function = self._operator.body
        model = self._captured(function, given, numbers, sizes)
        return Pattern(tuple(model.graph.inputs), tuple(model.graph.outputs), model.graph)

    def template(self, given: Sequence[Given], numbers: Sequence[Any], sizes: Mapping[str, int]) -> Template:
        """The node that replaces the pattern of :meth:`exactly`."""
        model = self._captured(self._operator, given, numbers, sizes, inlined=False)
        domain, _, name = self.name.partition("::")
        node = next((node for node in model.graph if (node.domain, node.op_type) == (domain, name)), None)
        if node is None:
            raise InputError(
                f"{self.name} does not become a node of an ONNX model, because another mapping of it is in effect.",
                fix="remove the translation or decomposition that is declared for it.",
            )
        positions = {value: position for position, value in enumerate(model.graph.inputs)}
        inputs = tuple(None if value is None else positions[value] for value in node.inputs)
        return Template(
            domain, name, node.overload, inputs, tuple(node.attributes.values()), tuple(model.functions.values())
        )

    def _captured(
        self,
        function: Callable[..., Any],
        given: Sequence[Given],
        numbers: Sequence[Any],
        sizes: Mapping[str, int],
        inlined: bool = True,
    ) -> ir.Model:
        tensors = tuple(_example(item, sizes) for item in given)
        dynamic = tuple(
            {axis: _dimension(size) for axis, size in enumerate(item.sizes) if isinstance(size, str)} for item in given
        )
        module = _Rebuilt(function, self._leaves, self._structure, tuple(numbers))
        captured = capture(
            module,
            tensors,
            dynamic_shapes=(dynamic,) if any(dynamic) else None,
            input_names=[f"input_{position}" for position in range(len(tensors))],
        )
        planned = plan(captured.program, self._catalog, opset=max(self._opset, LOWEST_OPSET))
        model = translate(planned, captured).model
        if inlined:
            model = InlinePass()(model).model
        if model.opset_imports[""] != self._opset:
            # Below opset 15 a model has no functions by default, and the body of the node is one.
            converted = convert_opset(model, self._opset, ir_version=model.ir_version)
            if converted.unexpressed:
                lost = converted.unexpressed[0]
                raise InputError(
                    f"The body of {self.name} can't be written in opset {self._opset}: {lost.operator}: {lost.reason}.",
                    fix=f"convert the model to a newer opset: opbridge.convert_opset(model, {LOWEST_OPSET}).",
                )
            model = converted.model
        refine_shapes(model)
        return model


class _Rebuilt(torch.nn.Module):
    """Calls a function with its tensors as they come, and its other arguments as they were given."""

    def __init__(
        self, function: Callable[..., Any], leaves: Sequence[Any], structure: Any, numbers: Sequence[Any]
    ) -> None:
        super().__init__()
        self._function = function
        self._leaves = leaves
        self._structure = structure
        self._numbers = numbers

    def forward(self, *tensors: torch.Tensor) -> Any:
        given, numbers = iter(tensors), iter(self._numbers)
        leaves = [
            next(given) if isinstance(leaf, torch.Tensor) else next(numbers) if _is_number(leaf) else leaf
            for leaf in self._leaves
        ]
        return self._function(*torch.utils._pytree.tree_unflatten(leaves, self._structure))


def _dimension(size: str) -> Any:
    # An expression over other dimensions follows from those.
    return size if size.isidentifier() else torch.export.Dim.AUTO


def _example(given: Given, sizes: Mapping[str, int]) -> torch.Tensor:
    numbers = [size_of(size, sizes) for size in given.sizes]
    if given.dtype not in _DTYPES or any(size is None for size in numbers):
        raise InputError(
            f"torch has no tensor of type {given.dtype.name.lower()} and shape {list(given.sizes)}.",
            fix="give the model's values types and sizes that are known.",
        )
    return torch.ones([int(size or 0) for size in numbers]).to(_DTYPES[given.dtype])


class FunctionSource:
    """An ONNX function, for any sizes.

    Args:
        function: The function; it calls no others.
    """

    def __init__(self, function: ir.Function) -> None:
        self.name = f"{function.domain}::{function.name}"
        self._function = function

    def loosely(self) -> Pattern:
        """The function as it is written."""
        return Pattern(tuple(self._function.inputs), tuple(self._function.outputs), self._function)

    def guesses(self, match: Match) -> Iterator[tuple[Any, ...]]:
        """The function's attributes at a place, as pairs of name and value."""
        found = {one[1]: other for one, other in match.constants if is_reference(one)}
        yield tuple(found.items())

    def exactly(self, given: Sequence[Given], attributes: Sequence[Any], sizes: Mapping[str, int]) -> Pattern:
        """The function's body with the types and attributes that a call gives it."""
        values = [
            ir.Value(name=f"input_{position}", type=ir.TensorType(item.dtype), shape=ir.Shape(item.sizes))
            for position, item in enumerate(given)
        ]
        call = ir.Node(self._function.domain, self._function.name, values, self._attributes(attributes))
        holder = ir.Model(ir.Graph([], [], nodes=[], opset_imports={}), ir_version=10)
        holder.functions[self._function.identifier()] = self._function
        body = infer.bind_body(holder, self._function, call)
        if isinstance(body, ir.Graph):
            refine_shapes(ir.Model(body, ir_version=10))
        return Pattern(tuple(body.inputs), tuple(body.outputs), body)

    def template(self, given: Sequence[Given], attributes: Sequence[Any], sizes: Mapping[str, int]) -> Template:
        """The node that replaces the pattern of :meth:`exactly`."""
        function = self._function
        positions = tuple(range(len(function.inputs)))
        return Template(function.domain, function.name, "", positions, tuple(self._attributes(attributes)), (function,))

    def _attributes(self, attributes: Sequence[Any]) -> list[ir.Attr]:
        return [ir.convenience.convert_attribute(name, value) for name, value in attributes]


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (int, float)) and not isinstance(leaf, bool)


def _in_stead(number: Any, constants: Sequence[tuple[Any, Any]]) -> list[Any]:
    """The numbers in the graph at positions where the pattern has ``number``, most frequent first."""
    counted: collections.Counter[Any] = collections.Counter()
    for one, other in constants:
        mine, theirs = _flat(one), _flat(other)
        if len(mine) == len(theirs):
            counted.update(b for a, b in zip(mine, theirs, strict=True) if _equal(a, number) and _is_number(b))
    return [type(number)(value) for value, _ in counted.most_common() if type(number)(value) == value]


def _flat(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return value.reshape(-1).tolist() if value.size <= _LARGEST_LIST else []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _equal(one: Any, number: Any) -> bool:
    return _is_number(one) and math.isclose(one, number, rel_tol=1e-6)
