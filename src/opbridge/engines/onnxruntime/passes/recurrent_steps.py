"""Recurrent layers without gates as loops over their steps, for ``faster_forms``.

Measured with ONNX Runtime 1.32 on one thread of an x86-64 processor: the kernel of RNN computes the activation element
by element. 64 steps of 128 rows of 64 elements take a quarter of its time as a Scan of a Gemm and the activation, of 8
rows of 256 elements half; a single row of 64 elements takes the same time, and one of 32 elements twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder

__all__ = ["is_recurrent", "recurrent_steps"]

_FEW = 128
"""The number of elements of a state up to which the overhead of the loop outweighs the gain."""
_ROWS = 8
"""The number of rows for which a layer of a dynamic number of rows is written."""


def is_recurrent(node: ir.Node, shape: Sequence[Any]) -> bool:
    """Whether an RNN over sequences of one length has a state with many elements."""
    weights, lengths = node.inputs[1], node.inputs[4] if len(node.inputs) > 4 else None
    is_plain = node.attributes.get_int("layout", 0) == 0 and "clip" not in node.attributes
    if not is_plain or lengths is not None or weights is None or weights.shape is None or len(shape) != 3:
        return False
    rows, (directions, width, _) = shape[1], weights.shape
    return (
        isinstance(directions, int)
        and isinstance(width, int)
        and (rows if isinstance(rows, int) else _ROWS) * width > _FEW
        and set(_activations(node)) <= {"Tanh", "Relu"}
    )


def _activations(node: ir.Node) -> Sequence[str]:
    return node.attributes.get_strings("activations", ["Tanh", "Tanh"])


def recurrent_steps(op: Builder, node: ir.Node) -> tuple[ir.Value, ir.Value]:
    """One Scan for each direction.

    Returns:
        The states of all steps, (steps, directions, rows, width), and the last one, (directions, rows, width).
    """
    x, weights, recurrent, biases, _, initial = (*node.inputs, None, None, None)[:6]
    directions, width = list(recurrent.shape)[:2]  # type: ignore[union-attr]
    states, last = [], []
    for place in range(int(directions)):  # type: ignore[arg-type]
        part = op.constant(place)
        rows = op.MatMul(x, op.Transpose(op.Gather(weights, part, axis=0), perm=[1, 0]))
        if biases is not None:
            both = op.Reshape(op.Gather(biases, part, axis=0), [2, width])
            rows = op.Add(rows, op.ReduceSum(both, [0], keepdims=0))
        across = op.Transpose(op.Gather(recurrent, part, axis=0), perm=[1, 0])
        state = op.Gather(initial, part, axis=0) if initial is not None else _zeros(op, x, width)
        is_reverse = place == 1 or node.attributes.get_string("direction", "forward") == "reverse"
        state, each = _scan(op, state, rows, across, _activations(node)[place], is_reverse)
        states.append(op.Unsqueeze(each, [1]))
        last.append(op.Unsqueeze(state, [0]))
    return (op.Concat(*states, axis=1), op.Concat(*last, axis=0)) if directions != 1 else (states[0], last[0])


def _zeros(op: Builder, x: Any, width: Any) -> ir.Value:
    shape = op.Concat(op.Gather(op.Shape(x), [1], axis=0), [width], axis=0)
    result: ir.Value = op.ConstantOfShape(shape, value=ir.tensor(np.zeros(1, np.float32)))
    return result


def _scan(
    op: Builder, state: ir.Value, rows: ir.Value, across: ir.Value, activation: str, is_reverse: bool
) -> tuple[ir.Value, ir.Value]:
    """The last state and the states of all steps, from the share of the inputs in the steps."""

    def step(inner: Builder, before: ir.Value, row: ir.Value) -> Sequence[ir.Value]:
        after = inner.make(activation, inner.Gemm(before, across, row))
        return after, inner.Identity(after)

    of_step = ir.Shape([*rows.shape][1:])  # type: ignore[misc]
    inputs = (ir.Value(name=name, type=rows.type, shape=of_step) for name in ("state", "row"))
    direction = [int(is_reverse)]
    results: tuple[ir.Value, ir.Value] = op.make(
        "Scan",
        state,
        rows,
        outputs=2,
        body=op.graph("step", step, *inputs),
        num_scan_inputs=1,
        scan_input_directions=direction,
        scan_output_directions=direction,
    )
    return results
