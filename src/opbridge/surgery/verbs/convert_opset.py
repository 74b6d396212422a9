"""Convert an ONNX model to another opset, or report the nodes that can't be expressed in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from opbridge.errors import InputError, UnsupportedOperatorError
from opbridge.onnx_model.opsets.convert import NEWEST_OPSET, OLDEST_OPSET
from opbridge.onnx_model.opsets.convert import convert_opset as convert
from opbridge.onnx_model.opsets.result import ConvertedOpset
from opbridge.surgery.edited import Change, Edited, model_of

if TYPE_CHECKING:
    from opbridge.surgery.edited import ModelLike

__all__ = ["convert_opset"]

_SHOWN = 12


def convert_opset(model: ModelLike, opset: int, *, ir_version: int | None = None) -> Edited:
    """Convert an ONNX model to a higher or lower opset of the standard domain.

    The names of inputs, outputs and weights and the nodes of other domains are kept. Model-local functions are
    converted; if the IR version has no functions (below 8, the default below opset 15), they are inlined.

    Args:
        model: A path, an ``onnx_ir.Model``, a ``ModelProto`` or the result of another change. It is not changed.
        opset: The target opset, from 11 to the newest opset of the installed onnx.
        ir_version: The IR version; by default the model's own if the opset is older than it, else the opset's.

    Returns:
        The converted model and the changes; its ``save`` method writes the model.

    Raises:
        InputError: The opset or IR version is unknown, the model is damaged, or it has no opset of the standard domain.
        UnsupportedOperatorError: The opset can't express some nodes; the message names each with the reason.
    """
    _check_numbers(opset, ir_version)
    given = model_of(model)
    if not {"", "ai.onnx"} & set(given.opset_imports):
        domains = ", ".join(map(repr, given.opset_imports))
        raise InputError(
            f"The model has no opset of the standard domain, only of {domains or 'none'}.",
            fix="convert-opset changes the standard domain 'ai.onnx' alone; other domains stay as they are.",
        )
    converted = convert(given, opset, ir_version=ir_version)
    if converted.unexpressed:
        raise _unsupported(converted)
    return Edited(converted.model, tuple(Change(item.what, item.nodes) for item in converted.changes))


def _check_numbers(opset: int, ir_version: int | None) -> None:
    if not isinstance(opset, int) or not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        raise InputError(
            f"Opset {opset!r} is unknown: {OLDEST_OPSET} to {NEWEST_OPSET} can be written with onnx "
            f"{onnx.__version__}.",
            fix=f"ask for an opset from {OLDEST_OPSET} to {NEWEST_OPSET}.",
        )
    lowest = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", OLDEST_OPSET)])
    if ir_version is not None and not lowest <= ir_version <= onnx.IR_VERSION:
        raise InputError(
            f"IR version {ir_version} is unknown: {lowest} to {onnx.IR_VERSION} can be written.",
            fix=f"ask for one from {lowest} to {onnx.IR_VERSION}, or leave it out.",
        )


def _unsupported(converted: ConvertedOpset) -> UnsupportedOperatorError:
    items = converted.unexpressed
    lines = [f"  {item.node} ({item.operator}): {item.reason}" for item in items]
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    nodes = "1 node" if len(items) == 1 else f"{len(items)} nodes"
    return UnsupportedOperatorError(
        f"Opset {converted.opset} can't express {nodes} of the model:\n" + "\n".join([*lines[:_SHOWN], *more]),
        fix=f"choose a newer opset (the model is of {converted.from_opset}), or replace these nodes.",
        targets=tuple(dict.fromkeys(item.operator for item in items)),
        details="\n".join(lines),
    )
