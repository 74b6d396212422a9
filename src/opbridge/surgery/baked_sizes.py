"""Updates constants that hold old input sizes when the sizes of a model's inputs change."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from opbridge.errors import InputError, first_line
from opbridge.onnx_model.infer import without_weights
from opbridge.surgery.dimensions import Size, Sizes, sizes_of
from opbridge.surgery.edited import Change, describe, fresh_name, names_of_values, remove_unused
from opbridge.surgery.shapes import infer_again
from opbridge.surgery.terms import Reader

__all__ = ["Resized", "repair"]


@dataclasses.dataclass(frozen=True)
class Resized:
    """A dimension of an input that changes.

    Attributes:
        value: The input.
        axis: The axis.
        old: The old size of the dimension.
        size: The new size or name of the dimension.
        number: The number to use for a named size.
    """

    value: ir.Value
    axis: int
    old: int
    size: Size
    number: int = 0


def repair(model: ir.Model, resized: Sequence[Resized], old: Mapping[ir.Value, Sizes | None]) -> list[Change]:
    """Give the inputs their new sizes, and update the constants that hold the old sizes, in place.

    Args:
        model: The model; all its sizes must be numbers.
        resized: The dimensions that change.
        old: The sizes of all values before the change.

    Raises:
        InputError: A node's constants can't be updated; the message names the node.
    """
    for item in resized:
        sizes = list(sizes_of(item.value) or ())
        sizes[item.axis] = item.number
        item.value.shape = ir.Shape(sizes)
    work = _Work(model, resized, old)
    done: list[Change] = []
    for _ in range(len(list(model.graph)) + 1):
        infer_again(model)
        change = work.update_first()
        if change is None:
            break
        done.append(change)
    name, reason = _first_failure(model)
    if name:
        olds = ", ".join(f"{item.value.name!r} ({item.old})" for item in resized)
        raise InputError(
            f"The node {name!r} has the old size of {olds} built in: {reason}",
            fix="export the model with this dimension dynamic, or change what the node holds first.",
        )
    return done


class _Work:
    def __init__(self, model: ir.Model, resized: Sequence[Resized], old: Mapping[ir.Value, Sizes | None]) -> None:
        self._model = model
        self._resized = resized
        self._old = old
        self._taken = names_of_values(model)
        self._right: set[ir.Node] = set()

    def update_first(self) -> Change | None:
        """Update the first node, in order, whose constants hold an old size; None if there is no such node."""
        reader = Reader(self._model.opset_imports.get("", 1))
        for node in self._model.graph:
            if node in self._right:
                continue
            if node.domain and node.op_identifier() not in self._model.functions:
                self._refuse_foreign(node)
            if node.op_type == "Reshape" and not node.domain and node.inputs[1] is not None:
                target = reader.constant(node.inputs[1])
                if target is not None and (change := self._reshape(node, target)) is not None:
                    return change
            elif node.op_type == "Concat" and not node.domain and (change := self._concat(node)) is not None:
                return change
        return None

    def _refuse_foreign(self, node: ir.Node) -> None:
        if any(value is not None and self._old.get(value) not in (None, sizes_of(value)) for value in node.inputs):
            raise InputError(
                f"The custom node {describe(node)!r} ({node.domain}::{node.op_type}) has no body, so what it gives at "
                "another size is not known.",
                fix="attach a body first: opbridge.surgery.attach.",
            )

    def _reshape(self, node: ir.Node, target: np.ndarray) -> Change | None:
        source, result = node.inputs[0], node.outputs[0]
        assert source is not None
        before, now, out = self._old.get(source), sizes_of(source), self._old.get(result)
        if not (_numbers(before) and _numbers(now) and _numbers(out)) or before == now:
            return None
        options = list(_carried(before, now, out, [item.old for item in self._resized]))
        if not options:
            raise InputError(
                f"The Reshape {describe(node)!r} from {list(before or ())} to {list(out or ())} can't follow an input "
                f"of {list(now or ())}.",
                fix="export the model with this dimension dynamic.",
            )
        best = options[0] if len(options) == 1 else max(options, key=lambda sizes: self._reach(node, sizes))
        self._right.add(node)
        if best == sizes_of(result):
            return None
        self._set_target(node, best, out or ())
        return Change("the target of the Reshape follows", (describe(node),))

    def _reach(self, node: ir.Node, sizes: Sizes) -> float:
        """How far the model's shapes are valid with this target: the position of the first node that fails."""
        given = node.inputs[1]
        value = self._constant(np.array(sizes, np.int64))
        node.replace_input_with(1, value)
        name, _ = _first_failure(self._model)
        node.replace_input_with(1, given)
        remove_unused(self._model.graph, [], [value])
        positions = {describe(item): position for position, item in enumerate(self._model.graph)}
        return positions.get(name, math.inf) if name else math.inf

    def _set_target(self, node: ir.Node, sizes: Sizes, out: Sizes) -> None:
        given = node.inputs[1]
        changed = [axis for axis, (a, b) in enumerate(zip(sizes, out, strict=True)) if a != b]
        fixed = all(isinstance(item.size, int) for item in self._resized)
        numbers: list[Any] = [int(size) for size in sizes if size is not None]
        if not fixed and len(changed) == 1:
            # All other sizes are numbers, so -1 determines this one.
            numbers[changed[0]] = -1
            value = self._constant(np.array(numbers, np.int64))
        elif fixed:
            value = self._constant(np.array(numbers, np.int64))
        else:
            value = self._computed(numbers, {axis: _factor(sizes[axis], self._resized) for axis in changed}, node)
        node.replace_input_with(1, value)
        node.attributes.pop("allowzero", None)
        remove_unused(self._model.graph, [], [given])

    def _concat(self, node: ir.Node) -> Change | None:
        """Expand a constant that is concatenated with a value that grows."""
        axis = node.attributes["axis"].as_int()
        shapes = [None if value is None else sizes_of(value) for value in node.inputs]
        if not all(_numbers(shape) for shape in shapes):
            return None
        rank = len(shapes[0] or ())
        wanted = {}
        for other in (number for number in range(rank) if number != axis % rank):
            found = {shape[other] for shape in shapes if shape}
            grown = found & {item.number for item in self._resized}
            if len(found) == 2 and grown and found - grown <= {item.old for item in self._resized}:
                wanted[other] = grown.pop()
        for position, value in enumerate(node.inputs):
            shape = shapes[position]
            assert shape is not None
            if wanted and value is not None and any(shape[other] != size for other, size in wanted.items()):
                if any(shape[other] not in (1, size) for other, size in wanted.items()):
                    return None
                sizes = [wanted.get(other, size) for other, size in enumerate(shape)]
                self._expand(node, position, value, sizes, wanted)
                return Change("a constant that is joined to the input follows", (describe(node),))
        return None

    def _expand(
        self, node: ir.Node, position: int, value: ir.Value, sizes: Sequence[Size], wanted: Mapping[int, Size]
    ) -> None:
        fixed = all(isinstance(item.size, int) for item in self._resized)
        numbers = [int(size) for size in sizes if isinstance(size, int)]
        factors = {axis: _factor(size, self._resized) for axis, size in wanted.items()}
        target = self._constant(np.array(numbers, np.int64)) if fixed else self._computed(numbers, factors, node)
        expand = ir.Node("", "Expand", [value, target], name=fresh_name(f"Expand_{value.name}", self._taken))
        expand.outputs[0].name = fresh_name(f"{value.name}_expanded", self._taken)
        expand.outputs[0].type = value.type
        self._model.graph.insert_before(node, expand)
        node.replace_input_with(position, expand.outputs[0])

    def _constant(self, array: np.ndarray) -> ir.Value:
        name = fresh_name("sizes", self._taken)
        tensor = ir.tensor(array, name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
        self._model.graph.register_initializer(value)
        return value

    def _computed(
        self, numbers: Sequence[int], factors: Mapping[int, tuple[Resized, int]], before: ir.Node
    ) -> ir.Value:
        """A shape in which some sizes are computed as multiples of an input's size."""
        parts: list[ir.Value] = []
        for axis, number in enumerate(numbers):
            if axis not in factors:
                parts.append(self._constant(np.array([number], np.int64)))
                continue
            item, factor = factors[axis]
            whole = self._node("Shape", [item.value], before)
            size = self._node("Gather", [whole, self._constant(np.array([item.axis], np.int64))], before)
            if factor != 1:
                size = self._node("Mul", [size, self._constant(np.array([factor], np.int64))], before)
            parts.append(size)
        return self._node("Concat", parts, before, [ir.AttrInt64("axis", 0)])

    def _node(
        self, op_type: str, inputs: Sequence[ir.Value], before: ir.Node, attributes: Sequence[ir.Attr] = ()
    ) -> ir.Value:
        node = ir.Node("", op_type, inputs, attributes, name=fresh_name(f"{op_type}_of_sizes", self._taken))
        node.outputs[0].name = fresh_name(f"{op_type.lower()}_of_sizes", self._taken)
        self._model.graph.insert_before(before, node)
        return node.outputs[0]


def _factor(size: Size, resized: Sequence[Resized]) -> tuple[Resized, int]:
    for item in resized:
        if isinstance(size, int) and size % item.number == 0:
            return item, size // item.number
    raise InputError(f"A size of {size} does not follow from the dimensions that change.", fix="change one at a time.")


def _numbers(sizes: Sizes | None) -> bool:
    return sizes is not None and all(isinstance(size, int) for size in sizes)


def _carried(before: Any, now: Any, out: Any, olds: Sequence[int]) -> Iterator[Sizes]:
    """The shapes that ``out`` may have after the input changes from ``before`` to ``now``, most likely first.

    The elements keep their row-major order, so a size that grows must become the outermost or innermost of the sizes
    that it is viewed as.
    """
    axes = [axis for axis, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]
    choices = []
    for axis in axes:
        outer, inner = math.prod(before[:axis]), math.prod(before[: axis + 1])
        fitting = [
            position
            for position, size in enumerate(out)
            if size * now[axis] % before[axis] == 0
            and (math.prod(out[:position]) == outer or math.prod(out[: position + 1]) == inner)
        ]
        unlike = {
            position: (
                out[position] not in olds,
                out[position] != before[axis],
                # The sizes on one side of it do not change.
                out[:position] != before[:axis] and out[position + 1 :] != before[axis + 1 :],
            )
            for position in fitting
        }
        choices.append(sorted(fitting, key=unlike.__getitem__))
    for chosen in itertools.product(*choices):
        sizes = list(out)
        for axis, position in zip(axes, chosen, strict=True):
            sizes[position] = sizes[position] * now[axis] // before[axis]
        yield tuple(sizes)


def _first_failure(model: ir.Model) -> tuple[str, str]:
    """The first node that is invalid for its input shapes, and the reason; both empty if all are valid."""
    copy = model.clone()
    infer_again(copy)
    for node in copy.graph:
        for value in node.outputs:
            value.shape = None
    try:
        onnx.shape_inference.infer_shapes(ir.to_proto(without_weights(copy)), strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError) as error:
        found = re.search(r"node name: ([^)]*)\)?\)?:\s*(.*)", str(error))
        return (found[1], found[2].strip()) if found else ("?", first_line(error))
    return "", ""
