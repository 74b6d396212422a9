"""Verifies an ONNX model on an engine against another model, which may run on another engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from opbridge.engines.base import Session
from opbridge.proof.compare.pairing import Paired
from opbridge.proof.compare.sides import ModelSide
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.original_runs import Candidate
from opbridge.proof.verify.reference_onnx import OnnxReference
from opbridge.proof.verify.verification import Verification
from opbridge.proof.verify.verify import verify

if TYPE_CHECKING:
    from opbridge.engines.base import Engine

__all__ = ["verify_against", "with_sizes"]


@dataclasses.dataclass(frozen=True)
class _Loaded(Candidate):
    """The reference on the engine that the user named; no other engine may run it."""

    session: Session | None = None

    def load(self, file: Path) -> Session:
        """Return the session that is already open."""
        assert self.session is not None
        return self.session


def verify_against(
    reference: ModelSide,
    own: Session,
    runs: Paired,
    *,
    label: str,
    fixed: Mapping[str, int],
    options: VerifyOptions,
) -> Verification:
    """Verify a model against a reference model, whose float64 run sets the tolerance.

    Args:
        reference: The reference model.
        own: The session of the reference model.
        runs: The other model, with the reference's input and output names.
        label: The name of the other model in messages.
        fixed: The sizes of the reference's dynamic dimensions that the other model fixes.
        options: The options of the verification.
    """
    graph = with_sizes(reference.graph(), fixed)
    engine: Engine = reference.engine
    candidate = _Loaded(engine.name, reference.label, session=own)
    with OnnxReference(graph, engine, own=[candidate]) as original:
        verified = verify(original, runs, engine=label, options=options)
    return dataclasses.replace(verified, reference=verified.reference.removeprefix("the original model in "))


def with_sizes(model: ir.Model, fixed: Mapping[str, int]) -> ir.Model:
    """The model with the given dynamic dimensions of its inputs fixed, changed in place."""
    for value in model.graph.inputs:
        if value.shape is not None:
            names = [
                size if isinstance(size, int) else size.value or f"{value.name}.{axis}"
                for axis, size in enumerate(value.shape)
            ]
            value.shape = ir.Shape(
                [_size(old, fixed.get(str(name))) for old, name in zip(value.shape, names, strict=True)]
            )
    return model


def _size(old: int | ir.SymbolicDim, new: int | None) -> int | str | None:
    if new is not None and not isinstance(old, int):
        return new
    return old if isinstance(old, int) else old.value
