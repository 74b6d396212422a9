"""Writes operators whose CPU kernels are slow, or inexact, in the form of others, with the same results.

Measured with ONNX Runtime 1.32 on one thread of an x86-64 processor: a Softmax over the channels of an image takes ten
times as long as its formula, PRelu three times (with one slope for all channels, ten times as long as LeakyRelu), and
nearest-neighbor resizing of a volume six times as long as three Gathers. Bicubic resizing takes ten times as long as
two products with the matrices of its weights, and longer. A Gather along the last axis copies element by element, and
takes 2.5 times as long as one along the first axis between two Transposes. An RNN takes up to four times as long as a
loop over its steps. A LayerNormalization of an Add becomes one SkipLayerNormalization, which takes five times as long;
of a Sum it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from opbridge.engines.onnxruntime.passes.exact_means import exact_instance_norm, is_of_many
from opbridge.engines.onnxruntime.passes.fixed_masks import is_masked
from opbridge.engines.onnxruntime.passes.recurrent_steps import is_recurrent, recurrent_steps
from opbridge.engines.versions import SYMBOLIC
from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.names import describe_node
from opbridge.onnx_model.opsets.building import Builder, Names
from opbridge.onnx_model.scopes import all_nodes
from opbridge.torch_graph.silence import silenced

if TYPE_CHECKING:
    from opbridge.engines.base import Engine
    from opbridge.kernels.library import KernelOperator

__all__ = ["FasterFormsPass"]

ORDER = 17
"""This pass runs before casts are inserted around nodes without a kernel."""

_FEW = 2**14
"""The number of elements up to which the overhead of more nodes outweighs the gain."""


def for_engine(model: ir.Model, engine: Engine, kernels: Sequence[KernelOperator]) -> FasterFormsPass | None:
    """For a model with such an operator."""
    opset = model.opset_imports.get("", 0)
    return FasterFormsPass() if any(_form_of(node, opset) for node in all_nodes(model)) else None


class FasterFormsPass(ir.passes.InPlacePass):
    """Replace each such node by the nodes of its faster form."""

    def call(self, model: ir.Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the changed nodes."""
        opset, names = model.opset_imports.get("", 0), Names(model)
        changed: dict[str, list[str]] = {}
        for node in list(all_nodes(model)):
            form = _form_of(node, opset)
            if form is not None:
                changed.setdefault(node.op_type, []).append(describe_node(node))
                _replace(node, form(Builder(node, opset, names, lambda made: None), node))
        common_passes.LiftConstantsToInitializersPass(size_limit=0)(model)
        with silenced():  # It warns of initializers that are outputs of a graph.
            common_passes.DeduplicateInitializersPass()(model)
        for node in all_nodes(model):
            node.version = None
        adaptations = tuple(
            Adaptation(f"{op_type} is written with operators that ONNX Runtime {_runs(op_type)}", tuple(nodes))
            for op_type, nodes in changed.items()
        )
        return AdaptationResult(model, bool(changed), adaptations)


def _runs(op_type: str) -> str:
    return "computes more exactly" if op_type == "InstanceNormalization" else "runs faster"


_Form = Callable[[Builder, ir.Node], ir.Value | tuple[ir.Value, ...]]


def _form_of(node: ir.Node, opset: int) -> _Form | None:
    """The function that writes the faster form of a node; None if there is none."""
    if node.domain or node.op_type not in _FORMS or opset < 13 or SYMBOLIC in node.metadata_props:
        return None
    x = node.inputs[0]
    if x is None or x.dtype is not ir.DataType.FLOAT or x.shape is None:
        return None
    return next((form for form, applies in _FORMS[node.op_type] if applies(node, x.shape)), None)


def _is_large(shape: Sequence[Any], few: int = _FEW) -> bool:
    sizes = [size for size in shape if isinstance(size, int)]
    return len(sizes) < len(shape) or math.prod(sizes) >= few


def _is_inner(node: ir.Node, shape: ir.Shape) -> bool:
    """Whether a Softmax is over an axis that has others after it."""
    axis = node.attributes.get_int("axis", -1) % len(shape)
    return any(size != 1 for size in list(shape)[axis + 1 :]) and _is_large(shape)


def _softmax(op: Builder, node: ir.Node) -> ir.Value:
    (x,), axis = node.inputs, node.attributes.get_int("axis", -1)
    below = op.Sub(x, _reduced(op, "ReduceMax", x, axis, since=18))
    powers = op.Exp(below)
    total = _reduced(op, "ReduceSum", powers, axis, since=13)
    return op.Div(powers, total) if node.op_type == "Softmax" else op.Sub(below, op.Log(total))


def _reduced(op: Builder, op_type: str, x: ir.Value, axis: int, since: int) -> ir.Value:
    """A reduction of one axis, which is kept; since some opset the axes are an input."""
    if op.opset < since:
        return op.make(op_type, x, axes=[axis], keepdims=1)
    return op.make(op_type, x, op.constant(np.array([axis])), keepdims=1)


_BELOW = 80.0
"""How far below the largest score of its row a score is at most, see ``fixed_masks``."""


def _softmax_of_bounded(op: Builder, node: ir.Node) -> ir.Value:
    """The Softmax of the scores relative to the largest of their row, of which none is lower than ``-_BELOW``."""
    (scores,) = node.inputs
    relative = op.Sub(scores, _reduced(op, "ReduceMax", scores, -1, since=18))  # type: ignore[arg-type]
    result: ir.Value = op.Softmax(op.Max(relative, -_BELOW), axis=-1)
    return result


def _is_normalized(node: ir.Node, shape: ir.Shape) -> bool:
    """Whether a sum of two tensors of one shape is the input of a LayerNormalization."""
    other = node.inputs[1]
    users = (use.node for use in node.outputs[0].uses() if use.idx == 0)
    return (
        other is not None
        and other.shape == shape
        and any(user.op_type == "LayerNormalization" and not user.domain for user in users)
    )


def _sum(op: Builder, node: ir.Node) -> ir.Value:
    result: ir.Value = op.Sum(*node.inputs)
    return result


def _parametric_relu(op: Builder, node: ir.Node) -> ir.Value:
    x, slope = node.inputs
    number = ir.convenience.get_const_tensor(slope)
    if number is not None and number.size == 1:
        return op.LeakyRelu(x, alpha=float(number.numpy().item()))
    return op.Add(op.Relu(x), op.Mul(op.Min(x, 0.0), slope))


def _is_of_one_rank(node: ir.Node, shape: ir.Shape) -> bool:
    """Whether the result of a PRelu has the rank of its input, also where LeakyRelu ignores the slope's."""
    slope = node.inputs[1]
    return slope is not None and slope.shape is not None and len(slope.shape) <= len(shape) and _is_large(shape)


_NEAREST = {("asymmetric", "floor"), ("half_pixel", "round_prefer_ceil")}
"""The ways in which PyTorch's models take the nearest element."""
_TIE = 1e-3
"""How near to the middle between two elements a position may not be, because ONNX Runtime rounds it in its own way."""


def _is_volume(node: ir.Node, shape: ir.Shape) -> bool:
    """Whether a Resize takes the nearest elements of a volume of known size."""
    modes = (("coordinate_transformation_mode", "half_pixel"), ("nearest_mode", "round_prefer_floor"))
    given = tuple(_attribute(node, name, default) for name, default in modes)
    result = node.outputs[0].shape
    return (
        len(shape) == 5
        and _attribute(node, "mode", "nearest") == "nearest"
        and _attribute(node, "keep_aspect_ratio_policy", "stretch") == "stretch"
        and given in _NEAREST
        and result is not None
        and all(isinstance(size, int) and size > 0 for size in (*list(shape)[2:], *list(result)[2:]))
        and list(shape)[:2] == list(result)[:2]
        and _scales(node, shape) is not None
        and _places(node, shape) is not None
    )


def _scales(node: ir.Node, shape: ir.Shape) -> dict[int, float] | None:
    """The scale of each axis of a Resize, as in ONNX Runtime; None if it is not constant."""
    axes = [axis % len(shape) for axis in node.attributes.get_ints("axes", list(range(len(shape))))]
    for position in (2, 3):
        value = node.inputs[position] if len(node.inputs) > position else None
        tensor = ir.convenience.get_const_tensor(value) if value is not None else None
        if tensor is not None and tensor.size == len(axes):
            numbers = dict(zip(axes, tensor.numpy().tolist(), strict=True))
            if position == 2:
                return numbers
            return {axis: number / size for axis, number in numbers.items() if isinstance(size := shape[axis], int)}
    return None


def _places(node: ir.Node, shape: ir.Shape) -> list[np.ndarray] | None:
    """The elements that a Resize takes along the last three axes; None if rounding decides about one of them."""
    scales, found = _scales(node, shape), []
    for axis in (2, 3, 4):
        before, count = shape[axis], node.outputs[0].shape[axis]  # type: ignore[index]
        steps, scale = np.arange(count, dtype=np.float32), np.float32(scales.get(axis, 1.0) if scales else 1.0)
        if _attribute(node, "nearest_mode", "") == "floor":
            taken = np.floor(steps / scale)
        else:
            center = (steps + np.float32(0.5)) / scale
            taken = np.floor(center)
            if np.any(np.abs(center - np.round(center)) < _TIE):
                return None
        found.append(np.clip(taken.astype(np.int64), 0, before - 1))
    return found


def _resized(op: Builder, node: ir.Node) -> ir.Value:
    result: Any = node.inputs[0]
    places = _places(node, result.shape) or []
    # The last axis first: the copies of the others then are longer.
    for axis, taken in reversed(list(enumerate(places, start=2))):
        if not np.array_equal(taken, np.arange(node.inputs[0].shape[axis])):  # type: ignore[union-attr, index, arg-type]
            indices = op.constant(taken)
            result = _taken_last(op, result, indices, 5) if axis == 4 else op.Gather(result, indices, axis=axis)
    return result if result is not node.inputs[0] else op.Identity(result)  # type: ignore[no-any-return]


_LEAST_TAKEN = 1 / 8
"""The share of the elements of a row from which taking them pays for the Transpose of all."""
_FEW_TAKEN = 2**11
"""The number of elements up to which it does not."""


def _is_along_last(node: ir.Node, shape: ir.Shape) -> bool:
    """Whether a Gather takes many elements of each row."""
    indices, length = node.inputs[1], shape[-1] if len(shape) else None
    if indices is None or indices.shape is None or len(indices.shape) != 1 or not isinstance(length, int):
        return False
    count = indices.shape[0]
    return (
        len(shape) > 1
        and node.attributes.get_int("axis", 0) in (-1, len(shape) - 1)
        and isinstance(count, int)
        and count > max(1, length * _LEAST_TAKEN)
        and _is_large([*shape[:-1], count], _FEW_TAKEN)
    )


def _along_last(op: Builder, node: ir.Node) -> ir.Value:
    x, indices = node.inputs
    return _taken_last(op, x, indices, len(x.shape))  # type: ignore[union-attr, arg-type]


def _taken_last(op: Builder, x: ir.Value, indices: ir.Value, rank: int) -> ir.Value:
    columns = op.Transpose(x, perm=[rank - 1, *range(rank - 1)])
    return op.Transpose(op.Gather(columns, indices, axis=0), perm=[*range(1, rank), 0])


_MOST_WEIGHTS = 2**18
"""The largest matrix of the weights of bicubic resizing along one axis: 1 MB."""


def _is_bicubic(node: ir.Node, shape: ir.Shape) -> bool:
    """Whether a Resize is a bicubic one of images of known size, with the borders repeated."""
    plain = {"mode": "cubic", "keep_aspect_ratio_policy": "stretch", "antialias": 0, "exclude_outside": 0}
    given = {name: _attribute(node, name, value) for name, value in plain.items()}
    mode = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    if given != plain or mode not in ("half_pixel", "align_corners", "asymmetric") or "axes" in node.attributes:
        return False
    sizes, result = list(shape), node.outputs[0].shape
    if len(sizes) != 4 or result is None or not _is_large(result):
        return False
    known = [isinstance(size, int) for size in (*sizes[2:], *list(result)[2:])]
    return (
        all(known)
        and list(result)[:2] == sizes[:2]
        and all(0 < before * after <= _MOST_WEIGHTS for before, after in zip(sizes[2:], list(result)[2:], strict=True))
    )


def _attribute(node: ir.Node, name: str, default: Any) -> Any:
    return (
        node.attributes.get_string(name, default)
        if isinstance(default, str)
        else node.attributes.get_int(name, default)
    )


def _bicubic(op: Builder, node: ir.Node) -> ir.Value:
    x, result = node.inputs[0], node.outputs[0].shape
    scales = ir.convenience.get_const_tensor(node.inputs[2]) if node.inputs[2] is not None else None
    mode = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    a = node.attributes.get_float("cubic_coeff_a", -0.75)

    def weights(axis: int) -> np.ndarray:
        before, after = int(x.shape[axis]), int(result[axis])  # type: ignore[union-attr, index, arg-type]
        given = scales is not None and scales.size > 0
        scale = float(scales.numpy()[axis]) if given else after / before  # type: ignore[union-attr]
        return _cubic_weights(before, after, scale, mode, a)

    rows = op.MatMul(op.constant(weights(2)), x)
    return op.MatMul(rows, op.constant(np.ascontiguousarray(weights(3).T)))


def _cubic_weights(before: int, after: int, scale: float, mode: str, a: float) -> np.ndarray:
    """The weight of each given element in each new one, (after, before), float32.

    Keys, "Cubic convolution interpolation for digital image processing", 1981, with the free parameter ``a``.
    """
    places = np.arange(after, dtype=np.float64)
    if mode == "align_corners":
        places = places * (before - 1) / max(after - 1, 1)
    else:
        places = (places + 0.5) / scale - 0.5 if mode == "half_pixel" else places / scale
    first = np.floor(places).astype(np.int64)
    matrix = np.zeros((after, before))
    for step in (-1, 0, 1, 2):
        distance = np.abs(places - (first + step))
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        at = np.clip(first + step, 0, before - 1)
        np.add.at(matrix, (np.arange(after), at), np.where(distance <= 1, near, far))
    return matrix.astype(np.float32)


_FORMS: Mapping[str, Sequence[tuple[_Form, Callable[[ir.Node, ir.Shape], bool]]]] = {
    "Add": [(_sum, _is_normalized)],
    "Softmax": [(_softmax, _is_inner), (_softmax_of_bounded, is_masked)],
    "LogSoftmax": [(_softmax, _is_inner)],
    "Gather": [(_along_last, _is_along_last)],
    "InstanceNormalization": [(exact_instance_norm, is_of_many)],
    "PRelu": [(_parametric_relu, _is_of_one_rank)],
    "Resize": [(_resized, _is_volume), (_bicubic, _is_bicubic)],
    "RNN": [(recurrent_steps, is_recurrent)],
}


def _replace(node: ir.Node, form: ir.Value | tuple[ir.Value, ...]) -> None:
    """Use the values of ``form`` in place of the node's outputs, under their names, and the node's own for the last."""
    values = (form,) if isinstance(form, ir.Value) else form
    for old, new in zip(node.outputs, values, strict=False):
        if not old.uses() and not old.is_graph_output():
            continue
        new.type, new.shape = old.type, old.shape
        new.name, old.name = old.name, f"{old.name}_slow"
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph, given = node.graph, [value for value in node.inputs if value is not None]
    assert graph is not None
    graph.remove(node, safe=True)
    for value in given:
        if value.is_initializer() and not (value.uses() or value.is_graph_input() or value.is_graph_output()):
            assert value.graph is not None
            del value.graph.initializers[value.name]
    if (last := values[0].producer()) is not None:
        last.name = node.name
