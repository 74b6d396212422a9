"""Masks of attention that hide some scores in every run, for ``faster_forms``.

Measured with ONNX Runtime 1.32 on one thread of an x86-64 processor: exp takes ten times as long where its result is
below the normal numbers of float32 (-infinity included), and a product with such results thirty times as long. Hidden
scores are -infinity, or -100 in Swin, so that attention with a causal mask takes twice as long as without, and a Swin
transformer a third longer. ``faster_forms`` lets no score be more than 80 below the largest of its row: exp(-80) is a
normal number that a float32 sum with exp(0) does not notice. The product of 0 and an infinite value is NaN, and that of
exp(-80) is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.nan import keeps_nan

__all__ = ["is_masked"]

_HIDDEN = -50.0
"""What hides a score is at most this number."""
_ADDED = frozenset({"Add", "Sum"})
_MOVED = frozenset({"Cast", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
_COMBINED = frozenset({"And", "Or", "Not"})
_SIZES = frozenset({"Shape", "Size"})


def is_masked(node: ir.Node, shape: Sequence[Any]) -> bool:
    """Whether the Softmax is one of attention whose mask hides scores whatever the inputs of the model are."""
    axis = node.attributes.get_int("axis", -1)
    uses = node.outputs[0].uses()
    return (
        not keeps_nan()
        and len(shape) > 1
        and axis in (-1, len(shape) - 1)
        and len(uses) > 0
        and not node.outputs[0].is_graph_output()
        and all(use.node.op_type == "MatMul" and use.idx == 0 for use in uses)
        and _has_mask(node.inputs[0])
    )


def _has_mask(scores: ir.Value | None) -> bool:
    """Whether a fixed mask was added to the scores, or took their place."""
    for value, node in _sources(scores, _ADDED | _MOVED | {"Where"}):
        hidden = _hidden(value)
        if hidden is not None and hidden.any() and not hidden.all():
            return True
        if node is not None and node.op_type == "Where":
            condition, *branches = node.inputs
            if any(hidden is not None and hidden.all() for hidden in map(_hidden, branches)) and _is_fixed(condition):
                return True
    return False


def _hidden(value: ir.Value | None) -> np.ndarray | None:
    """Which elements of a constant hide a score; None if the value is no constant of floats."""
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    return tensor.numpy() <= _HIDDEN if tensor is not None and tensor.dtype is ir.DataType.FLOAT else None


def _is_fixed(condition: ir.Value | None) -> bool:
    """Whether a part of a condition depends on sizes and constants only, and is not the same everywhere."""
    for value, node in _sources(condition, _COMBINED | _MOVED):
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None:
            if tensor.numpy().any() and not tensor.numpy().all():
                return True
        elif node is not None and node.op_type not in _COMBINED | _MOVED and not _reads_inputs(value):
            return True
    return False


def _reads_inputs(value: ir.Value) -> bool:
    """Whether a value depends on an input of its graph by more than its sizes."""
    return any(found.is_graph_input() for found, _ in _sources(value, None))


def _sources(value: ir.Value | None, operators: frozenset[str] | None) -> Iterator[tuple[ir.Value, ir.Node | None]]:
    """A value and what it is computed from by these operators (by None: all but ``Shape``), with their nodes."""
    found, waiting = set[ir.Value](), [value]
    while waiting:
        current = waiting.pop()
        if current is None or current in found:
            continue
        found.add(current)
        node = current.producer()
        yield current, node
        if node is not None and (node.op_type not in _SIZES if operators is None else node.op_type in operators):
            waiting += node.inputs
