"""The captured program that a bundle of a PyTorch model is compared with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from opbridge.bundle.bundle import Bundle
from opbridge.bundle.reference import find_entry
from opbridge.bundle.trust import Trust
from opbridge.capture.assumption import Assume, Assumption
from opbridge.capture.assumption_output import ASSUMPTIONS_HOLD
from opbridge.capture.capture import Captured, StateBuffer, capture, load_program
from opbridge.capture.entry import Entry, as_entry
from opbridge.capture.stateful import capture_with_state
from opbridge.catalog.declare.catalog import Catalog, Ops

__all__ = ["INITIAL_STATE", "REFERENCE", "capture_entry", "captured_of_bundle"]

INITIAL_STATE = "initial_state.npz"
"""The file of the state before the first run, by input name, in a bundle that was exported with its state."""

REFERENCE = "reference.pt2"
"""The file of the captured program in a bundle that was exported with its reference."""


def capture_entry(
    entry: Entry, catalog: Catalog, input_names: Sequence[str] | None, output_names: Sequence[str] | None
) -> Captured:
    """Capture an entry with the rewrites of a catalog, under these ONNX names."""
    make = capture_with_state if entry.state else capture
    return make(
        entry.model,
        entry.args,
        entry.kwargs,
        dynamic_shapes=entry.dynamic_shapes,
        input_names=input_names,
        output_names=output_names,
        rewrites=catalog.rewrites(),
        assume=entry.assume,
    )


def captured_of_bundle(bundle: Bundle, reference: Any, ops: Ops) -> Captured:
    """The captured program that a bundle is compared with; ``reference`` is that of :func:`opbridge.verify`.

    Raises:
        InputError: There is no reference, or the bundle's own is code of a stranger.
    """
    inputs, outputs = [spec.name for spec in bundle.inputs], [spec.name for spec in bundle.outputs]
    if reference is None and REFERENCE in bundle.manifest["files"]:
        if bundle.trust is Trust.NONE:
            # torch.export.load evaluates expressions and falls back to pickle.
            raise bundle.refusal(
                f"The bundle's own model to compare with is {REFERENCE}, a saved program, which can run code when read",
                "name the model yourself with --reference file.py:function",
            )
        captured = capture(load_program(bundle.path / REFERENCE), input_names=inputs, output_names=outputs)
        return dataclasses.replace(captured, state=_state(bundle), assumptions=_assumptions(bundle))
    if reference is None:
        reference = find_entry(bundle)
    entry = as_entry(reference)
    assume: Assume = "check" if ASSUMPTIONS_HOLD in outputs else bool(_assumptions(bundle))
    entry = dataclasses.replace(entry, state=bool(_state(bundle)), assume=assume)
    return capture_entry(entry, Catalog.load(ops), inputs, outputs)


def _assumptions(bundle: Bundle) -> tuple[Assumption, ...]:
    """What the bundle's model assumes."""
    return tuple(Assumption.from_dict(item) for item in bundle.manifest.get("assumptions", ()))


def _state(bundle: Bundle) -> tuple[StateBuffer, ...]:
    """The buffers that are inputs and outputs of the bundle's model."""
    return tuple(StateBuffer.from_dict(item) for item in bundle.manifest.get("state_buffers", ()))
