"""Matches the inputs and outputs of two models by name, else by position."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from opbridge.engines.base import Session, TensorSpec
from opbridge.errors import InputError
from opbridge.kernels.dtypes import numpy_dtype
from opbridge.proof.verify.compare import is_floating

__all__ = ["Paired", "Pairing", "pair"]


@dataclasses.dataclass(frozen=True)
class Pairing:
    """How the inputs and outputs of a model correspond to those of the reference model.

    Attributes:
        inputs: The reference's input for each input of the model.
        outputs: The model's output for each output of the reference that has a counterpart.
        dtypes: The dtype of each input of the model whose dtype differs from the reference's.
        fixed: The sizes of the reference's dimensions, by name, that are fixed in the model.
        notes: Notes on pairs that were not matched by name.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    dtypes: Mapping[str, str]
    fixed: Mapping[str, int]
    notes: tuple[str, ...]


def pair(reference: Session, model: Session, *, names: tuple[str, str]) -> Pairing:
    """Match the inputs and outputs of two loaded models.

    Args:
        reference: The reference model.
        model: The other model.
        names: The names of the two models in messages.

    Raises:
        InputError: The inputs of the models differ in number, type, rank or size.
    """
    inputs, notes = _inputs(reference.inputs, model.inputs, names)
    outputs, output_notes = _outputs(reference.outputs, model.outputs, names[1])
    known = {spec.name: spec for spec in reference.inputs}
    dtypes: dict[str, str] = {}
    fixed: dict[str, int] = {}
    for spec in model.inputs:
        own = known[inputs[spec.name]]
        fixed |= _fixed_sizes(own, spec, names)
        if own.dtype != spec.dtype:
            _check_dtypes(own, spec, names)
            dtypes[spec.name] = spec.dtype
            notes.append(f"the input {spec.name} is {spec.dtype} in {names[1]}, and {own.dtype} in {names[0]}")
    if fixed:
        sizes = ", ".join(f"{name}={size}" for name, size in sorted(fixed.items()))
        notes.append(f"{names[1]} takes fixed sizes where {names[0]} does not: only {sizes} is compared")
    return Pairing(inputs, outputs, dtypes, fixed, (*notes, *output_notes))


def _inputs(
    reference: Sequence[TensorSpec], model: Sequence[TensorSpec], names: tuple[str, str]
) -> tuple[dict[str, str], list[str]]:
    known, required = [spec.name for spec in reference], [spec.name for spec in model]
    if set(required) <= set(known):
        unread = [name for name in known if name not in required]
        return dict(zip(required, required, strict=True)), [f"{names[1]} has no input {name}" for name in unread]
    if len(known) != len(required):
        raise InputError(
            f"{names[1]} takes the inputs {', '.join(required)}, and {names[0]} takes {', '.join(known) or 'none'}.",
            fix="compare models that take the same inputs, or rename them to match: opbridge rename.",
        )
    pairs = dict(zip(required, known, strict=True))
    shown = ", ".join(f"{theirs} is {own}" for theirs, own in pairs.items() if theirs != own)
    return pairs, [f"the inputs were matched by position: {shown}"]


def _outputs(
    reference: Sequence[TensorSpec], model: Sequence[TensorSpec], name: str
) -> tuple[dict[str, str], list[str]]:
    known, given = [spec.name for spec in reference], [spec.name for spec in model]
    common = [item for item in known if item in given]
    if len(common) == len(known) or (common and len(known) != len(given)):
        return {item: item for item in common}, []
    if len(known) != len(given):
        return {}, []
    pairs = dict(zip(known, given, strict=True))
    shown = ", ".join(f"{theirs} of {name} is {own}" for own, theirs in pairs.items() if theirs != own)
    return pairs, [f"the outputs were matched by position: {shown}"]


def _fixed_sizes(own: TensorSpec, theirs: TensorSpec, names: tuple[str, str]) -> dict[str, int]:
    clash = len(own.shape) != len(theirs.shape) or any(
        isinstance(one, int) and isinstance(other, int) and one != other
        for one, other in zip(own.shape, theirs.shape, strict=True)
    )
    if clash:
        raise InputError(
            f"The input {own.name!r} has the shape {_shape(own)} in {names[0]}, and {_shape(theirs)} in {names[1]}.",
            fix="compare models that take the same inputs; opbridge set-dimension changes a size of an ONNX model.",
        )
    return {
        one: other
        for one, other in zip(own.shape, theirs.shape, strict=True)
        if isinstance(one, str) and isinstance(other, int)
    }


def _check_dtypes(own: TensorSpec, theirs: TensorSpec, names: tuple[str, str]) -> None:
    one, other = numpy_dtype(own.dtype), numpy_dtype(theirs.dtype)
    if not ((is_floating(one) and is_floating(other)) or (one.kind in "iu" and other.kind in "iu")):
        raise InputError(
            f"The input {own.name!r} is {own.dtype} in {names[0]}, and {theirs.dtype} in {names[1]}.",
            fix="compare models that take the same inputs.",
        )


def _shape(spec: TensorSpec) -> str:
    return f"[{', '.join(map(str, spec.shape))}]"


class Paired:
    """A loaded model, run with the reference's input and output names.

    Args:
        session: The model.
        pairing: The matching inputs and outputs of the two models.
        dtypes: The dtypes that the reference's floating-point outputs are cast to; none by default.

    Attributes:
        seen: The inputs of the runs, each set once, in order.
    """

    def __init__(self, session: Session, pairing: Pairing, dtypes: Mapping[str, np.dtype] | None = None) -> None:
        self._session = session
        self._pairing = pairing
        self._dtypes = dict(dtypes or {})
        self.seen: list[Mapping[str, np.ndarray]] = []

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model; the outputs have the reference's names, followed by outputs without a counterpart."""
        if not any(known is feeds for known in self.seen):
            self.seen.append(feeds)
        results = self._session.run(
            {
                theirs: np.asarray(feeds[own]).astype(numpy_dtype(self._pairing.dtypes[theirs]))
                if theirs in self._pairing.dtypes
                else feeds[own]
                for theirs, own in self._pairing.inputs.items()
            }
        )
        named = {own: results[theirs] for own, theirs in self._pairing.outputs.items()}
        taken = set(self._pairing.outputs.values())
        rest = {name: array for name, array in results.items() if name not in taken}
        return {**{own: self._typed(own, array) for own, array in named.items()}, **rest}

    def _typed(self, name: str, array: np.ndarray) -> np.ndarray:
        required = self._dtypes.get(name)
        if required is None or array.dtype == required or not (is_floating(required) and is_floating(array.dtype)):
            return array
        return array.astype(required)

    def close(self) -> None:
        """Do nothing: the session is closed by the code that opened it."""
