"""Simplification of the graph after the rules: pairs that are joined and then split again are removed."""

from __future__ import annotations

from typing import Any

import torch
from torch.export.graph_signature import TensorArgument

from opbridge.torch_graph.targets import graph_modules

__all__ = ["simplify"]

_aten = torch.ops.aten
_APART, _JOIN, _STACK, _SELECT = (
    _aten.view_as_real.default,
    _aten.view_as_complex.default,
    _aten.stack.default,
    _aten.select.int,
)


def simplify(program: torch.export.ExportedProgram) -> None:
    """Remove nodes that join parts which are then split again, in place.

    A remaining complex32 tensor, which is an input or output of the program, is declared as pairs of float16, its form
    in ONNX, because torch.onnx has no such type.
    """
    for module in graph_modules(program):
        _size_pairs(module.graph)
        nodes = module.graph.find_nodes(op="call_function", target=_APART)
        if not nodes and not module.graph.find_nodes(op="call_function", target=_JOIN):
            continue
        for apart in nodes:
            for user in list(apart.users):
                part = _part(apart, user)
                if part is not None:
                    user.replace_all_uses_with(part)
            joined = apart.args[0]
            if _calls(joined, _JOIN):
                apart.replace_all_uses_with(joined.args[0])
            elif isinstance(joined, torch.fx.Node) and joined.meta["val"].dtype == torch.complex32:
                apart.replace_all_uses_with(joined)
        _erase_unused(module.graph)
        _free_views(module.graph)
        _without_halves(module.graph)
        module.recompile()
    _name_results(program)


def _name_results(program: torch.export.ExportedProgram) -> None:
    """Update the results of the program whose nodes were replaced."""
    results = program.graph.output_node().args[0]
    for node, spec in zip(results, program.graph_signature.output_specs, strict=True):  # type: ignore[arg-type]
        if isinstance(node, torch.fx.Node) and isinstance(spec.arg, TensorArgument):
            spec.arg.name = node.name


def _size_pairs(graph: torch.fx.Graph) -> None:
    """Compute the sizes of complex tensors from those of their pairs."""
    for node in graph.find_nodes(op="call_function", target=_aten.sym_size.int):
        tensor, dim = node.args
        value = tensor.meta["val"]  # type: ignore[union-attr]
        if value.is_complex():
            with graph.inserting_before(node):
                pairs = graph.call_function(_APART, (tensor,))
            with value.fake_mode:
                pairs.meta["val"] = torch.view_as_real(value)
            node.args = (pairs, dim % value.dim())


def _calls(value: Any, target: Any) -> bool:
    return isinstance(value, torch.fx.Node) and value.op == "call_function" and value.target is target


def _part(apart: torch.fx.Node, user: torch.fx.Node) -> torch.fx.Node | None:
    """The part that ``user`` selects from a stacked pair; None if it is any other operator."""
    joined = apart.args[0]
    if user.target is not _SELECT or not _calls(joined, _JOIN):
        return None
    stacked, last = joined.args[0], apart.meta["val"].dim() - 1  # type: ignore[union-attr]
    _, dim, index = user.args
    if not _calls(stacked, _STACK) or dim not in (-1, last) or stacked.args[1] not in (-1, last):  # type: ignore[union-attr]
        return None
    return stacked.args[0][index]  # type: ignore[union-attr,index,return-value]


def _erase_unused(graph: torch.fx.Graph) -> None:
    for node in reversed(graph.nodes):
        if not node.users and node.op == "call_function" and node.target in (_APART, _JOIN, _STACK, _SELECT):
            graph.erase_node(node)


def _free_views(graph: torch.fx.Graph) -> None:
    """Replace views of parts by reshapes: a stacked part is contiguous, but the part itself may not be."""
    for target in (_aten.view.default, _aten._unsafe_view.default):
        for node in graph.find_nodes(op="call_function", target=target):
            if not node.meta["val"].is_complex():
                node.target = _aten.reshape.default


def _without_halves(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype == torch.complex32:
            with value.fake_mode:  # type: ignore[attr-defined]
                node.meta["val"] = torch.view_as_real(value)
