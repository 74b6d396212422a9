"""A workaround for 16-bit floating-point outputs that torch.onnx computes in float32 without casting them back."""

from __future__ import annotations

import torch
from torch.export.graph_signature import TensorArgument

__all__ = ["shield_results"]

_HALVES = (torch.float16, torch.bfloat16)


def shield_results(program: torch.export.ExportedProgram) -> None:
    """Insert an alias between each 16-bit floating-point output of a program and the operator that computes it.

    torch.onnx promotes the inputs of an operator and adds a cast after it. It finds outputs by the name of their node,
    and therefore returns the operator's result instead of the cast's.

    Args:
        program: The decomposed program, which is changed in place.
    """
    graph, signature = program.graph, program.graph_signature
    output = graph.output_node()
    results = list(output.args[0])  # type: ignore[arg-type]
    for index, (node, spec) in enumerate(zip(results, signature.output_specs, strict=True)):
        if not _is_computed_half(node):
            continue
        with graph.inserting_after(node):
            alias = graph.call_function(torch.ops.aten.alias.default, (node,))
        alias.meta = dict(node.meta)
        results[index] = alias
        spec.arg = TensorArgument(name=alias.name)
    output.args = (tuple(results),)
    program.graph_module.recompile()


def _is_computed_half(node: object) -> bool:
    if not isinstance(node, torch.fx.Node) or node.op != "call_function":
        return False
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in _HALVES
