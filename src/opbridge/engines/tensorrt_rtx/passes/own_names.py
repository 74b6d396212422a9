"""For functions that the parser would silently confuse with other operators.

The parser looks an operator up by its type, without the domain. For a ``mylib::Add`` with a body it runs ONNX's
``Add``; for two overloads of a function it runs the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from opbridge.engines.tensorrt_rtx.support import has_importer
from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.names import describe_node, describe_operator
from opbridge.onnx_model.scopes import all_nodes

if TYPE_CHECKING:
    from opbridge.kernels.library import KernelOperator

__all__ = ["ORIGINAL", "OwnNamesPass"]

ORDER = 15

ORIGINAL = "opbridge.operator"
"""The metadata key of a node whose operator was renamed; its value is the original ``"domain::Op"``."""


def for_engine(model: ir.Model, engine: Any, kernels: Sequence[KernelOperator]) -> OwnNamesPass | None:
    """For a model with such functions."""
    taken = {key for key in model.functions if key[2] or has_importer(engine.product, key[1])}
    return OwnNamesPass(taken) if taken else None


class OwnNamesPass(ir.passes.InPlacePass):
    """Give these functions, and the nodes that call them, unique names.

    Args:
        functions: The identifiers of the functions.
    """

    def __init__(self, functions: Collection[tuple[str, str, str]]) -> None:
        super().__init__()
        self._functions = functions

    def call(self, model: ir.Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the renamed functions."""
        taken = {name for _, name, _ in model.functions}
        names = {key: _own_name(key, taken) for key in sorted(self._functions)}
        done: dict[str, list[str]] = {}
        for node in all_nodes(model):
            name = names.get(node.op_identifier())
            if name is None:
                continue
            operator = describe_operator(node.domain, node.op_type)
            done.setdefault(f"the function {operator} becomes {node.domain}::{name}", []).append(describe_node(node))
            node.metadata_props[ORIGINAL] = operator
            node.op_type, node.overload = name, ""
        for key, name in names.items():
            function = model.functions.pop(key)
            function.name, function.overload = name, ""
            model.functions[function.identifier()] = function
        adaptations = tuple(
            Adaptation(f"{what}: the parser distinguishes functions only by it", tuple(nodes))
            for what, nodes in done.items()
        )
        return AdaptationResult(model, True, adaptations)


def _own_name(key: tuple[str, str, str], taken: set[str]) -> str:
    """An unused name, which is then recorded as used."""
    _, name, overload = key
    base = f"{name}_function_{overload}" if overload else f"{name}_function"
    own = base
    number = 2
    while own in taken:
        own, number = f"{base}_{number}", number + 1
    taken.add(own)
    return own
