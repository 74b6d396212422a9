"""Check elementwise operators with dynamic sizes: ncnn does not compare sizes and would read past the shorter input."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from opbridge.errors import EngineError
from opbridge.onnx_model.infer import with_types

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["refuse_open_broadcasts"]

_ELEMENTWISE = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mod", "PRelu", "Where"}


def refuse_open_broadcasts(model: onnx.ModelProto) -> None:
    """Raise EngineError if two dimensions with different names meet in an elementwise operator."""
    names = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    if len(names) < 2:
        return
    import onnx_ir as ir

    for node in with_types(ir.serde.deserialize_model(model)).graph:
        if node.domain or node.op_type not in _ELEMENTWISE:
            continue
        for one, other in itertools.combinations(node.inputs, 2):
            for pair in _meeting(one, other):
                if len(set(pair)) == 2 and set(pair) <= names:
                    raise EngineError(
                        f"Node {node.name!r} ({node.op_type}) would broadcast the sizes {pair[0]!r} and {pair[1]!r}, "
                        "and ncnn does not compare sizes.",
                        fix="give equal dimensions the same name, or export with fixed sizes.",
                    )


def _meeting(one: ir.Value | None, other: ir.Value | None) -> Iterator[tuple[str, str]]:
    """The pairs of dimension names that are broadcast against each other, from the last axis."""
    if one is None or other is None or one.shape is None or other.shape is None:
        return
    for first, second in zip(reversed(list(one.shape)), reversed(list(other.shape)), strict=False):
        if not isinstance(first, int) and not isinstance(second, int):
            yield str(first.value), str(second.value)
