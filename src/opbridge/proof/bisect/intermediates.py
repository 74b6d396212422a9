"""Values inside a model: the reference's, and the errors of an engine's.

A value of the ONNX model has a *counterpart* if the reference computes the same value: the captured graph
(:class:`CapturedValues`), or the ONNX model that was given (``onnx_values.py``).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from opbridge.proof.verify.captured_graph import CapturedGraph
from opbridge.proof.verify.compare import Verdict, allclose, error_units, floor_units, is_floating, judge
from opbridge.proof.verify.inputs import InputSpecs, to_numpy
from opbridge.proof.verify.options import Tolerance
from opbridge.proof.verify.perturbed import perturbed_feeds
from opbridge.proof.verify.trace import Status
from opbridge.torch_graph.origins import Origin
from opbridge.torch_graph.sources import source_of_node

__all__ = ["CapturedValues", "Described", "Intermediate", "ReferenceValues", "Size", "judged", "portions"]


@dataclasses.dataclass(frozen=True)
class Intermediate:
    """A value as the reference has it on one case.

    Attributes:
        own: The value in the model's own dtype.
        wide: The value in float64; None if it is not a floating-point value, or if nothing computes it.
        random: Whether the value depends on random draws.
    """

    own: np.ndarray
    wide: np.ndarray | None
    random: bool = False


@dataclasses.dataclass(frozen=True)
class Size:
    """The type and the size of a value.

    Attributes:
        dtype: The value's type in the model.
        nbytes: The number of bytes in that type.
    """

    dtype: np.dtype
    nbytes: int


@dataclasses.dataclass(frozen=True)
class Described:
    """Where a value comes from: the fields of :class:`~opbridge.proof.verify.trace.TracedValue`."""

    target: str = ""
    fx_node: str = ""
    source: str = ""


class ReferenceValues(Protocol):
    """The reference's values on one case, by their names in the engine's model."""

    @property
    def names(self) -> Collection[str]:
        """The values, by their name in the ONNX model, that the reference has."""

    @property
    def run_seconds(self) -> float:
        """The time spent in runs of the reference."""

    @property
    def longest_sum(self) -> int:
        """Terms of the longest sum in the model, for the floor of the budget."""

    def visit(self, names: Collection[str], see: Callable[[str, Intermediate], None]) -> None:
        """Run the reference once, and show the values of these names as they come; none is kept here."""

    def own(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """The values of these names in the model's own dtype."""

    def sizes(self, names: Collection[str]) -> dict[str, Size]:
        """How large the values of these names are; those that are none of ONNX's are left out."""

    def nearby(self, name: str) -> list[np.ndarray]:
        """The value in the model's dtype, on perturbed inputs."""

    def describe(self, name: str) -> Described:
        """Where a value comes from."""


class CapturedValues:
    """The values of the captured graph on one case, by their names in the ONNX model.

    Args:
        reference: The captured graph.
        program: The program that ``reference`` was made of: it has the sources.
        origins: The node of the program that each ONNX value is.
        specs: The inputs of the program.
        feeds: The case's inputs, by ONNX name.
        longest_sum: The number of terms of the longest sum in the model.
        seed: The seed of random draws and of perturbed inputs.
    """

    def __init__(
        self,
        reference: CapturedGraph,
        program: torch.export.ExportedProgram,
        origins: Mapping[str, Origin],
        specs: InputSpecs,
        feeds: Mapping[str, np.ndarray],
        longest_sum: int,
        *,
        seed: int,
    ) -> None:
        self._reference = reference
        self._specs = specs
        self._feeds = feeds
        self._seed = seed
        self._nodes = {node.name: node for node in program.graph.nodes if node.op == "call_function"}
        self._origins = {name: origin for name, origin in origins.items() if origin.node in self._nodes}
        self.longest_sum = longest_sum
        self.run_seconds = 0.0

    @property
    def names(self) -> Collection[str]:
        """The values that the captured graph has."""
        return self._origins.keys()

    def visit(self, names: Collection[str], see: Callable[[str, Intermediate], None]) -> None:
        """Run the captured graph in both types, and show the values of these names."""
        self._visit(self._feeds, names, see, wide=True)

    def own(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """Run the captured graph in its own dtype, and keep the values of these names."""
        found: dict[str, np.ndarray] = {}

        def keep(name: str, value: Intermediate) -> None:
            found[name] = value.own.copy()

        if names:
            self._visit(self._feeds, names, keep, wide=False)
        return found

    def sizes(self, names: Collection[str]) -> dict[str, Size]:
        """Run the captured graph in its own dtype, and note how large the values of these names are."""
        found: dict[str, Size] = {}

        def see(name: str, value: Intermediate) -> None:
            found[name] = Size(value.own.dtype, value.own.nbytes)

        self._visit(self._feeds, names, see, wide=False)
        return found

    def nearby(self, name: str) -> list[np.ndarray]:
        """The value of the captured graph in the model's dtype, on perturbed inputs."""
        found: list[np.ndarray] = []
        for feeds in perturbed_feeds(self._feeds, self._seed):
            # The graph may refuse inputs that have moved, at an assertion for example.
            with contextlib.suppress(RuntimeError, ValueError):
                self._visit(feeds, [name], lambda _, value: found.append(value.own), wide=False)
        return found

    def _visit(
        self,
        feeds: Mapping[str, np.ndarray],
        names: Collection[str],
        see: Callable[[str, Intermediate], None],
        *,
        wide: bool,
    ) -> None:
        wanted: dict[str, list[str]] = {}
        for name in names:
            wanted.setdefault(self._origins[name].node, []).append(name)

        def watch(node: str, own: Any, wide_value: Any, random: bool) -> None:
            for name in wanted.get(node, ()):
                value = _intermediate(self._origins[name].index, own, wide_value, random)
                if value is not None:
                    see(name, value)

        flat, _ = self._specs.given(feeds)
        run = self._reference.run(flat, seed=self._seed, wide=wide, watch=watch)
        self.run_seconds += run.seconds

    def describe(self, name: str) -> Described:
        """The node of the captured graph, its operator, and the user's line."""
        origin = self._origins.get(name)
        if origin is None:
            return Described()
        node = self._nodes[origin.node]
        source = source_of_node(node)
        return Described(str(node.target).replace(".", "::", 1), node.name, str(source) if source else "")


def _intermediate(index: int | None, own: Any, wide: Any, random: bool) -> Intermediate | None:
    """One result of a node as arrays; None if ONNX has no such value."""
    if index is not None:
        if not isinstance(own, tuple | list) or index >= len(own):
            return None
        own, wide = own[index], wide[index]
    if not isinstance(own, torch.Tensor | int | float | bool):
        return None
    array = to_numpy(own)
    return Intermediate(array, np.asarray(to_numpy(wide), np.float64) if is_floating(array.dtype) else None, random)


def judged(
    result: np.ndarray,
    value: Intermediate,
    *,
    longest_sum: int = 1,
    tolerance: Tolerance | None = None,
    nearby: Callable[[], Sequence[np.ndarray]] = tuple,
) -> tuple[Status, Verdict]:
    """Compare a value of the engine with the reference's, by the rules for outputs.

    Args:
        result: The engine's value.
        value: The reference's value.
        longest_sum: The number of terms of the longest sum in the model.
        tolerance: The tolerance that replaces the error budget.
        nearby: The reference's value on perturbed inputs, for discrete values that differ.

    Returns:
        The status, as in :class:`~opbridge.verification.Comparison`, and the verdict.
    """
    own = value.own
    failed = Verdict(False, np.inf, 0.0, 0.0, np.inf)
    if result.dtype != own.dtype:
        if not (is_floating(result.dtype) and is_floating(own.dtype)):
            detail = f"the engine gives {result.dtype.name}, the reference {own.dtype.name}"
            return "dtype", dataclasses.replace(failed, detail=detail)
        # An adapted model may compute in a wider type, and cast afterwards.
        result = result.astype(own.dtype)
    if result.shape != own.shape:
        detail = f"the engine gives shape {list(result.shape)}, the reference {list(own.shape)}"
        return "shape", dataclasses.replace(failed, detail=detail)
    if result.tobytes() == own.tobytes():
        return "equal", Verdict(True, 0.0, 0.0, 0.0, 0.0)
    if not is_floating(own.dtype):
        return _judged_exactly(result, own, nearby)
    result64, own64 = result.astype(np.float64), own.astype(np.float64)
    if tolerance is not None:
        units = allclose(result64, own64, tolerance.rtol, tolerance.atol)
        worst = float(units.max(initial=0.0))
        verdict = Verdict(worst <= 1, worst, 0.0, 1.0, worst)
    else:
        wide = own64 if value.wide is None or value.wide.shape != own.shape else value.wide
        units = error_units(result64, own64, wide, own.dtype)
        own_units = error_units(own64, own64, wide, own.dtype)
        verdict = judge(units, [own_units], floor_units(own.dtype, longest_sum))
    return ("within budget" if verdict.passed else "differs"), verdict


def _judged_exactly(
    result: np.ndarray, own: np.ndarray, nearby: Callable[[], Sequence[np.ndarray]]
) -> tuple[Status, Verdict]:
    """Integers and truth values: each must be the reference's, or be a near tie."""
    wrong = result != own
    for other in nearby():
        if other.shape == own.shape:
            wrong &= result != other
    count = int(wrong.sum())
    if not count:
        return "decision", Verdict(True, 0.0, 0.0, 0.0, 0.0, "differs only by near ties decided differently")
    return "differs", Verdict(False, np.inf, 0.0, 0.0, np.inf, f"{count} of {own.size} elements differ")


def portions(names: Iterable[str], sizes: Mapping[str, int], most_bytes: int) -> Iterator[list[str]]:
    """Names in order, divided so that the values of each part take at most ``most_bytes``."""
    portion: list[str] = []
    held = 0
    for name in names:
        if portion and held + sizes[name] > most_bytes:
            yield portion
            portion, held = [], 0
        portion.append(name)
        held += sizes[name]
    if portion:
        yield portion
