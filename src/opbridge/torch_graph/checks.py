"""Removes the assertions from a captured graph, with the computations for them, because engines do not run them."""

from __future__ import annotations

import torch
from torch.export.graph_signature import InputKind, OutputKind

from opbridge.torch_graph.internals import is_fake
from opbridge.torch_graph.targets import graph_modules, target_key

__all__ = ["CHECKS", "remove_checks"]

CHECKS = {
    "aten::_assert_async.default",
    "aten::_assert_async.msg",
    "aten::_assert_scalar.default",
    "aten::_assert_tensor_metadata.default",
    "aten::_functional_assert_async.msg",
    "aten::_linalg_check_errors.default",
    "aten::_print.default",
    "aten::sym_constrain_range.default",
    "aten::sym_constrain_range_for_size.default",
}
"""Operators without results."""


def remove_checks(program: torch.export.ExportedProgram) -> None:
    """Remove the assertions of a decomposed program, and the tokens that order them."""
    for module in graph_modules(program):
        for node in reversed(module.graph.nodes):
            if node.op == "call_function" and target_key(node.target) in CHECKS and not node.users:
                module.graph.erase_node(node)
        _bypass_ordered_checks(module.graph)
        module.graph.eliminate_dead_code()
        module.recompile()
    _drop_unused_tokens(program)
    _drop_empty_constants(program)


def _drop_empty_constants(program: torch.export.ExportedProgram) -> None:
    """Remove constants without data, such as what ``linalg.inv`` in a loop makes for its assertion."""
    signature = program.graph_signature
    unused = {node.name: node for node in program.graph.find_nodes(op="placeholder") if not node.users}
    for name, target in signature.inputs_to_lifted_tensor_constants.items():
        if name in unused and is_fake(program.constants[target]):
            program.graph.erase_node(unused[name])
            del program.constants[target]
            signature.input_specs[:] = [spec for spec in signature.input_specs if spec.arg.name != name]
            program.graph_module.recompile()


def _bypass_ordered_checks(graph: torch.fx.Graph) -> None:
    """Bypass assertions with a side effect, which take a token and return a new one."""
    for node in list(graph.nodes):
        if getattr(node.target, "__name__", "") != "with_effects" or target_key(node.args[1]) not in CHECKS:
            continue
        for user in list(node.users):
            if user.args[1:] == (0,):
                user.replace_all_uses_with(node.args[0])
            graph.erase_node(user)
        graph.erase_node(node)


def _drop_unused_tokens(program: torch.export.ExportedProgram) -> None:
    signature, graph = program.graph_signature, program.graph
    tokens = {spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.TOKEN}
    placeholders = [node for node in graph.nodes if node.op == "placeholder" and node.name in tokens]
    output = graph.output_node()
    if not tokens or any(set(node.users) - {output} for node in placeholders):
        return
    kept = [i for i, spec in enumerate(signature.output_specs) if spec.kind is not OutputKind.TOKEN]
    output.args = (tuple(output.args[0][i] for i in kept),)  # type: ignore[index]
    for node in placeholders:
        graph.erase_node(node)
    signature.output_specs[:] = [signature.output_specs[i] for i in kept]
    signature.input_specs[:] = [spec for spec in signature.input_specs if spec.kind is not InputKind.TOKEN]
    program.graph_module.recompile()
