"""Checks a translated model: it is valid ONNX, and inputs and function bodies keep the dynamic dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from opbridge.errors import TranslationError
from opbridge.onnx_model.validity import Problem, fixed_bodies, problems

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.capture.capture import Captured

__all__ = ["check_translation"]


def check_translation(model: ir.Model, captured: Captured | None, targets: Mapping[str, str]) -> None:
    """Check a translated model.

    Args:
        model: The model.
        captured: The capture that it was translated from; None if its inputs are not those of the capture.
        targets: The torch operator of each node, by the node's name.

    Raises:
        TranslationError: The model is not valid; the message names the node and its torch operator. Or a dimension that
            is dynamic in the captured program is a number in the model.
    """
    invalid = problems(model)
    if invalid:
        target = targets.get(invalid[0].node)
        origin = f" of {target}" if target else ""
        raise TranslationError(
            f"The translation{origin} to ONNX is not valid: {invalid[0]}",
            fix=f"give the operator another mapping: @opbridge.decomposition({target!r}) or "
            f"@opbridge.translation({target!r})."
            if target
            else "this is a bug in opbridge; please report it with the log.",
            details="\n".join(map(str, invalid)),
            target=target,
        )
    fixed = [] if captured is None else list(_fixed_inputs(model, captured))
    if fixed:
        raise TranslationError(
            f"A mapping of torch fixes a dynamic dimension: the input {fixed[0]}",
            fix="leave this dimension out of dynamic_shapes, or find the operator with `opbridge reduce` and give it "
            "another mapping with opbridge.decomposition or opbridge.translation.",
            details="\n".join(map(str, fixed)),
        )
    bodies = list(fixed_bodies(model))
    if bodies:
        raise TranslationError(
            f"A function body fixes a dynamic dimension: {bodies[0]}",
            fix="write the body for all sizes, and give it with .set_body or opbridge.body_for.",
            details="\n".join(map(str, bodies)),
        )


def _fixed_inputs(model: ir.Model, captured: Captured) -> Iterator[Problem]:
    """The dimensions that were captured as dynamic and are numbers in the model."""
    for value in model.graph.inputs:
        for axis in captured.dynamic_axes.get(str(value.name), ()) if value.shape is not None else ():
            size = value.shape[axis]
            if isinstance(size, int):
                yield Problem(
                    str(value.name), "", f"was captured with a dynamic axis {axis}, which is {size} in the model"
                )
