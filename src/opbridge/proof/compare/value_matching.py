"""Matches the intermediate values of two models.

Values are matched by name if both models use the same names. Exporters record on a node what it was made from; this is
used if the operators agree. If names don't help, values that are equal on the same inputs are matched.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

import ml_dtypes
import numpy as np
import onnx_ir as ir

from opbridge.proof.bisect.intermediates import Described, Intermediate, Size
from opbridge.proof.bisect.intermediates_engine import EngineModel, loader
from opbridge.proof.bisect.onnx_values import OriginalValues
from opbridge.proof.compare.pairing import Pairing
from opbridge.proof.compare.sides import ModelSide
from opbridge.torch_graph.sources import source_of_stack_trace

__all__ = [
    "ModelValues",
    "equal_values",
    "fx_nodes",
    "opened",
    "recorded_source",
    "renamed",
    "same_names",
    "sources_of",
]

T = TypeVar("T")

_METADATA = "pkg.torch.onnx."
_FX_NODE = re.compile(r"^%(\w+)\b.*?target=torch\.ops\.([\w.]+)")
_CLOSE = 256.0
"""The limit in machine epsilons at the largest magnitude: rounding errors stay below it, and faults exceed it."""


def renamed(model: ir.Model, pairing: Pairing) -> ir.Model:
    """The model with its inputs and outputs renamed to the reference's names."""
    model = model.clone()
    inputs = {str(value.name): value for value in model.graph.inputs}
    outputs = {str(value.name): value for value in model.graph.outputs}
    renames = [(inputs[theirs], own) for theirs, own in pairing.inputs.items()]
    renames += [(outputs[theirs], own) for own, theirs in pairing.outputs.items() if theirs in outputs]
    renames = [(value, name) for value, name in renames if value.name != name]
    taken = {name for _, name in renames}
    for node in model.graph:
        for value in node.outputs:
            if value.name in taken:
                value.name = f"{value.name}.inner"
    for value in (*inputs.values(), *outputs.values()):
        if value.name in taken:
            value.name = f"{value.name}.inner"
    for name in taken & set(model.graph.initializers):
        weight = model.graph.initializers.pop(name)
        weight.name = f"{name}.inner"
        model.graph.initializers[f"{name}.inner"] = weight
    for value, name in renames:
        value.name = name
    return model


def opened(side: ModelSide, model: ir.Model) -> EngineModel:
    """The side's model, or a model derived from it, ready to be run in parts on the side's engine."""
    return EngineModel(model, loader(side.engine, side.libraries))


def fx_nodes(model: ir.Model) -> dict[str, tuple[str, str]]:
    """The FX node recorded for each value: its name, and its target as ``"aten.add.Tensor"``."""
    found = {}
    for node in model.graph:
        recorded = _FX_NODE.match(node.metadata_props.get(f"{_METADATA}fx_node", ""))
        if recorded:
            found.update({str(value.name): (recorded[1], recorded[2]) for value in node.outputs if value.name})
    return found


def recorded_source(node: ir.Node) -> str:
    """The user's source line recorded on a node; empty if there is none."""
    source = source_of_stack_trace(node.metadata_props.get(f"{_METADATA}stack_trace", ""))
    return "" if source is None else str(source)


def sources_of(side: ModelSide, model: ir.Model) -> dict[str, str]:
    """The user's source line by node name, from the bundle or the model."""
    recorded = {str(node.name): recorded_source(node) for node in model.graph if node.name}
    return {**{name: source for name, source in recorded.items() if source}, **side.sources}


def same_names(reference: ir.Model, model: ir.Model) -> dict[str, str]:
    """The values whose names both models share, mapped to the reference's names.

    Two exporters may use one name for different values. Then the operators that produce them differ too, and few names
    are shared.
    """
    own = {str(value.name): node for node in reference.graph for value in node.outputs if value.name}
    theirs = {str(value.name): node for node in model.graph for value in node.outputs if value.name}
    common = [name for name in theirs if name in own]
    if len(common) * 2 < min(len(own), len(theirs)):
        common = [name for name in common if own[name].op_identifier() == theirs[name].op_identifier()]
    return {name: name for name in common}


class ModelValues:
    """The values of the reference model, by the names of the other model.

    Args:
        values: The values of the reference model.
        pairs: The reference's name for each value of the other model.
        sources: The user's source line of each value of the other model.
    """

    def __init__(self, values: OriginalValues, pairs: Mapping[str, str], sources: Mapping[str, str]) -> None:
        self._values = values
        self._pairs = {name: known for name, known in pairs.items() if known in values.names}
        self._sources = sources
        self.longest_sum = values.longest_sum

    @property
    def run_seconds(self) -> float:
        """The time spent in runs of the reference."""
        return self._values.run_seconds

    @property
    def names(self) -> Collection[str]:
        """The names of the other model's values that were matched."""
        return self._pairs.keys()

    def visit(self, names: Collection[str], see: Callable[[str, Intermediate], None]) -> None:
        """Run the reference in its own type and in float64, and pass the named values to ``see``."""
        theirs: dict[str, list[str]] = {}
        for name in names:
            theirs.setdefault(self._pairs[name], []).append(name)

        def see_all(known: str, value: Intermediate) -> None:
            for name in theirs[known]:
                see(name, value)

        self._values.visit(theirs.keys(), see_all)

    def own(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """The named values in the reference's own types."""
        return self._named(names, self._values.own(self._known(names)))

    def sizes(self, names: Collection[str]) -> dict[str, Size]:
        """The sizes of the named values."""
        return self._named(names, self._values.sizes(self._known(names)))

    def nearby(self, name: str) -> list[np.ndarray]:
        """The value on perturbed inputs, which differ by a rounding error."""
        return self._values.nearby(self._pairs[name])

    def is_near_tie(self, name: str, result: np.ndarray) -> bool:
        """Whether the value differs by near ties only, as far as the reference knows."""
        return self._values.is_near_tie(self._pairs[name], result)

    def describe(self, name: str) -> Described:
        """The value's node in the reference, with the source line from the other model if it is known."""
        described = self._values.describe(self._pairs[name]) if name in self._pairs else Described()
        return dataclasses.replace(described, source=self._sources.get(name) or described.source)

    def _known(self, names: Collection[str]) -> list[str]:
        return list(dict.fromkeys(self._pairs[name] for name in names))

    def _named(self, names: Collection[str], found: Mapping[str, T]) -> dict[str, T]:
        return {name: found[self._pairs[name]] for name in names if self._pairs[name] in found}


def equal_values(
    reference: Mapping[str, np.ndarray], model: EngineModel, feeds: Mapping[str, np.ndarray]
) -> dict[str, str]:
    """Match the values of a model with reference values that are equal on the same inputs.

    Args:
        reference: The reference's values by name.
        model: The model.
        feeds: The inputs.
    """
    known: dict[tuple[int, ...], list[str]] = {}
    for name, array in reference.items():
        known.setdefault(array.shape, []).append(name)
    found: dict[str, str] = {}
    for name, array in _all_values(model, feeds):
        candidates = (own for own in known.get(array.shape, ()) if _close(array, reference[own]))
        match = next(candidates, None)
        if match is not None:
            found[name] = match
    return found


def _all_values(model: EngineModel, feeds: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    yield from model.run(list(model.values), feeds).items()


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays are equal except for rounding. False for constant arrays, which would match too much."""
    if one.dtype.kind != other.dtype.kind or one.size < 2:
        return False
    if one.dtype.kind not in "fV":
        return bool((one == other).all() and (one != one.reshape(-1)[0]).any())
    with np.errstate(all="ignore"):
        a, b = one.astype(np.float64), other.astype(np.float64)
        scale = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
        allowed = _CLOSE * float(ml_dtypes.finfo(other.dtype).eps)
        varied = bool((b != b.reshape(-1)[0]).any())
        return varied and bool(np.allclose(a, b, rtol=allowed, atol=allowed * scale, equal_nan=True))
