"""Workarounds for results whose type torch.onnx promotes: 16-bit outputs, and integers combined with numbers."""

from __future__ import annotations

import torch
from torch.export.graph_signature import TensorArgument

__all__ = ["promote_integers_beside_numbers", "shield_results"]

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


def promote_integers_beside_numbers(program: torch.export.ExportedProgram) -> None:
    """Cast an integer tensor that an operator combines with a number, where torch.onnx's cast is wrong.

    Beside a dynamic number, as in ``ids * (x.shape[0] - 0.5)``, torch.onnx would choose an overload of the operator for
    a number, whose mapping takes only constant ones. For ``1.0 - mask`` and ``ids // 2.5`` it finds no overload.

    Args:
        program: The decomposed program, which is changed in place.
    """
    graph = program.graph
    for node in list(graph.nodes):
        if len(node.args) < 2 or not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            continue
        result, first = _value(node), _value(node.args[0])
        at = 1 if isinstance(node.args[0], int | float) or isinstance(first, torch.SymFloat) else 0
        own = _value(node.args[at])
        is_quotient = node.target is torch.ops.aten.floor_divide.default
        is_dynamic = any(isinstance(_value(other), torch.SymFloat) for other in node.args[1:])
        if not (isinstance(result, torch.Tensor) and isinstance(own, torch.Tensor)) or own.dtype.is_floating_point:
            continue
        promoted = result.dtype.is_floating_point and (at == 1 or is_dynamic)
        if promoted or (is_quotient and result.dtype != own.dtype):
            with graph.inserting_before(node):
                cast = graph.call_function(torch.ops.aten._to_copy.default, (node.args[at],), {"dtype": result.dtype})
            cast.meta = {**node.meta, "val": own.to(result.dtype)}
            node.update_arg(at, cast)
    program.graph_module.recompile()


def _value(argument: object) -> object:
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
