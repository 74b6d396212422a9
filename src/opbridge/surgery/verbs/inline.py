"""Replace calls of model-local functions by the functions' nodes, the reverse of fusing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from opbridge.errors import InputError
from opbridge.onnx_model.scopes import all_nodes
from opbridge.onnx_model.structure import did_you_mean
from opbridge.surgery.edited import Change, Edited, describe, finished, model_of

__all__ = ["inline"]


def inline(model: Any, functions: Sequence[str] | None = None) -> Edited:
    """Replace the calls of functions by the functions' nodes.

    Args:
        model: A path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        functions: The functions to inline, as ``"domain::Op"``; None for all.

    Raises:
        InputError: The model has no such function.
    """
    own = model_of(model)
    known = {f"{domain}::{name}" for domain, name, _ in own.functions}
    for name in functions or ():
        if name not in known:
            raise InputError(f"The model has no function {name!r}.", fix=did_you_mean(name, sorted(known)))
    wanted = known if functions is None else set(functions)
    chosen = {key for key in own.functions if f"{key[0]}::{key[1]}" in wanted}
    calls: dict[str, list[str]] = {name: [] for name in sorted(wanted)}
    for node in all_nodes(own):
        if node.op_identifier() in chosen:
            calls[f"{node.domain}::{node.op_type}"].append(describe(node))
    result: ir.Model = InlinePass(lambda function: function.identifier() in chosen)(own).model
    for key in chosen & set(result.functions):
        # The function was never called.
        del result.functions[key]
    _forget_domains(result)
    return finished(model, result, [Change(f"{name} is inlined", tuple(nodes)) for name, nodes in calls.items()])


def _forget_domains(model: ir.Model) -> None:
    """Remove the opset imports of domains that are no longer used."""
    used = {node.domain for node in all_nodes(model)} | {key[0] for key in model.functions}
    for domain in list(model.opset_imports):
        if domain and domain not in used:
            del model.opset_imports[domain]
