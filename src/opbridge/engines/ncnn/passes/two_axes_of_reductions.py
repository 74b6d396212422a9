"""Reduce over two axes instead of one, because pnnx loses a single axis and then reduces over none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from opbridge.engines.probe import probe
from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.names import describe_node

if TYPE_CHECKING:
    from opbridge.engines.base import Engine
    from opbridge.kernels.library import KernelOperator

__all__ = ["TwoAxesOfReductionsPass"]

ORDER = 60
"""This pass runs after functions are inlined and casts are inserted."""

_LARGEST_RANK = 3
"""With one more axis this is ncnn's maximum of four; the batch does not count."""


def for_engine(model: ir.Model, engine: Engine, kernels: Sequence[KernelOperator]) -> TwoAxesOfReductionsPass | None:
    """For reductions over one axis that the engine refuses."""
    reductions = [node for node in model.graph.all_nodes() if _axis(node) is not None]
    if not reductions:
        return None
    refused = {refusal.node for refusal in probe(model, engine, [kernel.target for kernel in kernels])}
    names = {describe_node(node) for node in reductions} & refused
    return TwoAxesOfReductionsPass(names) if names else None


class TwoAxesOfReductionsPass(ir.passes.InPlacePass):
    """Add an axis of size 1 next to the reduced axis, and reduce over both.

    Above three dimensions, those on each side of the axis are merged for the reduction: ncnn has no fifth dimension.

    Args:
        names: The names of the nodes.
    """

    def __init__(self, names: set[str]) -> None:
        super().__init__()
        self._names = names

    def call(self, model: ir.Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the changed nodes."""
        changed = []
        for node in list(model.graph.all_nodes()):
            axis = _axis(node)
            if axis is not None and describe_node(node) in self._names and _fits(node, axis):
                _widen(node, axis)
                changed.append(describe_node(node))
        what = "a reduction over one axis is one over two, one of them of size 1"
        adaptations = (Adaptation(what, tuple(changed)),) if changed else ()
        return AdaptationResult(model, bool(changed), adaptations)


def _axis(node: ir.Node) -> int | None:
    """The axis of a reduction over a single axis, counted from the front."""
    if node.domain or not node.op_type.startswith("Reduce") or not node.inputs or node.inputs[0] is None:
        return None
    shape = node.inputs[0].shape
    if shape is None:
        return None
    axes: Sequence[int] = ()
    if "axes" in node.attributes:
        axes = node.attributes["axes"].as_ints()
    elif len(node.inputs) > 1 and node.inputs[1] is not None:
        tensor = ir.convenience.get_const_tensor(node.inputs[1])
        axes = [] if tensor is None else [int(axis) for axis in tensor.numpy().reshape(-1)]
    return axes[0] % len(shape) if len(axes) == 1 else None


def _fits(node: ir.Node, axis: int) -> bool:
    return _shape(node.inputs[0]) is not None and (
        len(_sizes(node.inputs[0])) <= _LARGEST_RANK or (_merged(node, axis) is not None and _open(node.outputs[0]) < 2)
    )


def _shape(value: ir.Value | None) -> ir.Shape | None:
    return None if value is None else value.shape


def _sizes(value: ir.Value | None) -> list[int]:
    """The sizes of a value, -1 for dynamic ones."""
    shape = _shape(value)
    assert shape is not None
    return [size if isinstance(size, int) else -1 for size in shape]


def _open(value: ir.Value) -> int:
    return 2 if value.shape is None else _sizes(value).count(-1)


def _merged(node: ir.Node, axis: int) -> list[int] | None:
    """The merged sizes before the axis, of the axis, 1, and after the axis; None if more than one is dynamic."""
    sizes = _sizes(node.inputs[0])
    parts = [sizes[:axis], [sizes[axis]], [1], sizes[axis + 1 :]]
    merged = [-1 if -1 in part else math.prod(part) for part in parts]
    return merged if merged.count(-1) < 2 else None


def _widen(node: ir.Node, axis: int) -> None:
    result, graph = node.outputs[0], node.graph
    value = node.inputs[0]
    assert graph is not None
    assert value is not None
    made = _Made(node)
    keeps = node.attributes["keepdims"].as_int() if "keepdims" in node.attributes else 1
    if len(_sizes(value)) <= _LARGEST_RANK:
        wide = made.applied("Unsqueeze", value, [axis + 1], "wide")
        value = made.applied(node.op_type, wide, [axis, axis + 1], "reduced", keepdims=0)
        if keeps:
            value = made.applied("Unsqueeze", value, [axis], "kept")
    else:
        wide = made.applied("Reshape", value, _merged(node, axis) or [], "wide")
        value = made.applied(node.op_type, wide, [1, 2], "reduced", keepdims=0)
        value = made.applied("Reshape", value, _sizes(result), "kept")
    value.shape, value.type = result.shape, result.type
    graph.insert_before(node, made.nodes)
    ir.convenience.replace_all_uses_with(result, value, replace_graph_outputs=True)
    name = result.name
    graph.remove(node, safe=True)
    value.name = name


class _Made:
    """The nodes that replace another, each with a constant as its second input."""

    def __init__(self, node: ir.Node) -> None:
        self.nodes: list[ir.Node] = []
        self._node = node
        self._name = node.name or node.outputs[0].name or node.op_type

    def applied(self, op_type: str, value: ir.Value, numbers: list[int], suffix: str, **attributes: int) -> ir.Value:
        name = f"{self._name}_{suffix}"
        constant = ir.node("Constant", [], {"value": ir.tensor(np.array(numbers, np.int64))}, name=f"{name}_numbers")
        constant.outputs[0].name = f"{name}_numbers"
        applied = ir.node(op_type, [value, constant.outputs[0]], attributes, name=name)
        applied.outputs[0].name = name
        applied.outputs[0].type = value.type
        for one in (constant, applied):
            one.metadata_props.update(self._node.metadata_props)
        self.nodes += (constant, applied)
        return applied.outputs[0]
