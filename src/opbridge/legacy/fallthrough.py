"""The nodes that ``operator_export_type`` writes for an operator that has no mapping to ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from opbridge.catalog.declare.spec import OpSpec
from opbridge.ladder.steps import Missing
from opbridge.legacy import switch
from opbridge.legacy.registrations import Registration, spec_of
from opbridge.torch_graph.targets import overload_of

__all__ = ["fallthrough_specs"]


def fallthrough_specs(missing: Sequence[Missing], export_type: str) -> tuple[OpSpec, ...]:
    """Return mappings for operators that have none, as the old exporter wrote them.

    Each becomes one node whose inputs are all arguments of the operator; numbers and strings are constants.

    Args:
        missing: The operators.
        export_type: The name of a member of ``torch.onnx.OperatorExportTypes``. ``ONNX_FALLTHROUGH`` keeps the name of
            the operator, and ``ONNX_ATEN_FALLBACK`` writes ``org.pytorch.aten::ATen`` nodes for operators of aten.
            Any other type writes no nodes.
    """
    specs = []
    for overload in dict.fromkeys(overload_of(item.leaf) for item in missing):
        name = overload._schema.name
        if export_type == "ONNX_FALLTHROUGH":
            symbolic = _as_it_is(overload)
        elif export_type == "ONNX_ATEN_FALLBACK" and overload.namespace == "aten":
            symbolic = _as_aten_node(overload)
        else:
            continue
        remark = f"{name} has no mapping to ONNX, so the operator itself is the node"
        switch.note("old argument", f"operator_export_type={export_type}", "", remark)
        specs.append(spec_of(Registration(name, {1: symbolic}), overload, list, noted=False))
    return tuple(specs)


def _as_it_is(overload: torch._ops.OpOverload) -> Callable[..., Any]:
    def symbolic(g: Any, *args: Any) -> Any:
        return g.op(overload._schema.name, *args, outputs=len(overload._schema.returns))

    return symbolic


def _as_aten_node(overload: torch._ops.OpOverload) -> Callable[..., Any]:
    def symbolic(g: Any, *args: Any) -> Any:
        name, count = overload._schema.name.partition("::")[2], len(overload._schema.returns)
        return g.at(name, *args, overload_name="", outputs=count)

    return symbolic
