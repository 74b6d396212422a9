"""Intermediate values: those of the reference, and the errors of an engine's.

A value of the ONNX model has a *counterpart* if the reference computes the same value. The reference is the captured
graph (:class:`CapturedValues`) or the user's ONNX model (``onnx_values.py``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from opbridge.proof.verify.captured_graph import CapturedGraph
from opbridge.proof.verify.compare import Verdict, allclose, error_units, floor_units, is_floating, judge
from opbridge.proof.verify.decisions import Choice, Deciding, Exactness
from opbridge.proof.verify.inputs import InputSpecs, to_numpy
from opbridge.proof.verify.options import Tolerance
from opbridge.proof.verify.perturbed import perturbed_feeds
from opbridge.proof.verify.trace import Status
from opbridge.torch_graph.origins import Origin
from opbridge.torch_graph.sources import source_of_node

__all__ = ["CapturedValues", "Described", "Intermediate", "ReferenceValues", "Size", "judged", "portions"]


@dataclasses.dataclass(frozen=True)
class Intermediate:
    """A value of the reference on one case.

    Attributes:
        own: The value in the model's own dtype.
        float64: The value in float64; None if the value is not floating-point, or if nothing computes it.
        random: Whether the value depends on random draws.
    """

    own: np.ndarray
    float64: np.ndarray | None
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
    """The origin of a value; the fields are those of :class:`~opbridge.proof.verify.trace.TracedValue`."""

    target: str = ""
    fx_node: str = ""
    source: str = ""


class ReferenceValues(Protocol):
    """The reference's values on one case, by their names in the engine's model."""

    @property
    def names(self) -> Collection[str]:
        """The values of the ONNX model that the reference has, by name."""

    @property
    def run_seconds(self) -> float:
        """The time spent in runs of the reference."""

    @property
    def longest_sum(self) -> int:
        """The number of terms of the longest sum in the model, which determines the floor of the budget."""

    def visit(self, names: Collection[str], see: Callable[[str, Intermediate], None]) -> None:
        """Run the reference once, and pass each of these values to ``see`` as it is computed; no value is kept."""

    def own(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """The values of these names in the model's own dtype."""

    def sizes(self, names: Collection[str]) -> dict[str, Size]:
        """The sizes of the values of these names; values that ONNX can't represent are left out."""

    def nearby(self, name: str) -> list[np.ndarray]:
        """The value in the model's dtype, on perturbed inputs."""

    def is_near_tie(self, name: str, result: np.ndarray) -> bool:
        """Whether the engine's discrete value differs from the reference's only by near ties."""

    def describe(self, name: str) -> Described:
        """The origin of a value."""


class CapturedValues:
    """The values of the captured graph on one case, by their names in the ONNX model.

    Args:
        reference: The captured graph.
        program: The program of ``reference``, which has the sources.
        origins: The node of the program for each ONNX value.
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
        self._seen: dict[tuple[str, int], Exactness] = {}
        self.longest_sum = longest_sum
        self.run_seconds = 0.0

    @property
    def names(self) -> Collection[str]:
        """The values that the captured graph has."""
        return self._origins.keys()

    def visit(self, names: Collection[str], see: Callable[[str, Intermediate], None]) -> None:
        """Run the captured graph in both types, and pass the values of these names to ``see``."""
        self._visit(self._feeds, names, see, float64=True)

    def own(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """Run the captured graph in its own dtype, and return the values of these names."""
        found: dict[str, np.ndarray] = {}

        def keep(name: str, value: Intermediate) -> None:
            found[name] = value.own.copy()

        if names:
            self._visit(self._feeds, names, keep, float64=False)
        return found

    def sizes(self, names: Collection[str]) -> dict[str, Size]:
        """Run the captured graph in its own dtype, and return the sizes of the values of these names."""
        found: dict[str, Size] = {}

        def see(name: str, value: Intermediate) -> None:
            found[name] = Size(value.own.dtype, value.own.nbytes)

        self._visit(self._feeds, names, see, float64=False)
        return found

    def nearby(self, name: str) -> list[np.ndarray]:
        """The value of the captured graph in the model's dtype, on perturbed inputs."""
        found: list[np.ndarray] = []
        for feeds in perturbed_feeds(self._feeds, self._seed):
            # The graph may refuse perturbed inputs, for example by an assertion.
            with contextlib.suppress(RuntimeError, ValueError):
                self._visit(feeds, [name], lambda _, value: found.append(value.own), float64=False)
        return found

    def is_near_tie(self, name: str, result: np.ndarray) -> bool:
        """Whether the captured graph may decide so too, by the float64 margins of the decision."""
        origin = self._origins[name]
        choice = Choice(origin.node, origin.index or 0, torch.from_numpy(np.array(result)))
        if not self._seen:
            for feeds in perturbed_feeds(self._feeds, self._seed):
                with contextlib.suppress(RuntimeError, ValueError):
                    self._decided(feeds, Deciding(seen=self._seen))
        observer = Deciding(choices=[choice], seen=self._seen)
        with contextlib.suppress(RuntimeError, ValueError):  # what follows from the decision does not matter here
            self._decided(self._feeds, observer)
        return origin.node in observer.followed

    def _decided(self, feeds: Mapping[str, np.ndarray], observer: Deciding) -> None:
        flat, _ = self._specs.given(feeds)
        self.run_seconds += self._reference.run(flat, seed=self._seed, observer=observer).seconds

    def _visit(
        self,
        feeds: Mapping[str, np.ndarray],
        names: Collection[str],
        see: Callable[[str, Intermediate], None],
        *,
        float64: bool,
    ) -> None:
        requested: dict[str, list[str]] = {}
        for name in names:
            requested.setdefault(self._origins[name].node, []).append(name)

        def watch(node: str, own: Any, float64_value: Any, random: bool) -> None:
            for name in requested.get(node, ()):
                value = _intermediate(self._origins[name].index, own, float64_value, random)
                if value is not None:
                    see(name, value)

        flat, _ = self._specs.given(feeds)
        run = self._reference.run(flat, seed=self._seed, float64=float64, watch=watch)
        self.run_seconds += run.seconds

    def describe(self, name: str) -> Described:
        """The node of the captured graph, its operator, and the user's line."""
        origin = self._origins.get(name)
        if origin is None:
            return Described()
        node = called = self._nodes[origin.node]
        while called.target is operator.getitem:  # One of several results.
            called = called.args[0]
        source = source_of_node(node)
        return Described(str(called.target).replace(".", "::", 1), node.name, str(source) if source else "")


def _intermediate(index: int | None, own: Any, float64: Any, random: bool) -> Intermediate | None:
    """One result of a node as arrays; None if ONNX can't represent it."""
    if index is not None:
        if not isinstance(own, tuple | list) or index >= len(own):
            return None
        own, float64 = own[index], float64[index]
    if not isinstance(own, torch.Tensor | int | float | bool):
        return None
    array = to_numpy(own)
    return Intermediate(array, np.asarray(to_numpy(float64), np.float64) if is_floating(array.dtype) else None, random)


def judged(
    result: np.ndarray,
    value: Intermediate,
    *,
    longest_sum: int = 1,
    tolerance: Tolerance | None = None,
    nearby: Callable[[], Sequence[np.ndarray]] = tuple,
    is_near_tie: Callable[[np.ndarray], bool] | None = None,
) -> tuple[Status, Verdict]:
    """Compare a value of the engine with the reference's value, by the rules for outputs.

    Args:
        result: The engine's value.
        value: The reference's value.
        longest_sum: The number of terms of the longest sum in the model.
        tolerance: The tolerance that replaces the tolerance.
        nearby: The reference's value on perturbed inputs, for discrete values that differ.
        is_near_tie: Whether a discrete value that differs is a near tie, if the reference knows.

    Returns:
        The status, as in :class:`~opbridge.proof.verify.verification.Comparison`, and the verdict.
    """
    own = value.own
    failed = Verdict(False, np.inf, 0.0, 0.0, np.inf)
    if result.dtype != own.dtype:
        if not (is_floating(result.dtype) and is_floating(own.dtype)):
            detail = f"the engine gives {result.dtype.name}, the reference {own.dtype.name}"
            return "dtype", dataclasses.replace(failed, detail=detail)
        # An adapted model may compute in a wider type, and cast afterwards.
        result = result.astype(own.dtype)
    if result.shape != own.shape and (is_floating(own.dtype) or is_near_tie is None or not is_near_tie(result)):
        detail = f"the engine gives shape {list(result.shape)}, the reference {list(own.shape)}"
        return "shape", dataclasses.replace(failed, detail=detail)
    if result.tobytes() == own.tobytes():
        return "equal", Verdict(True, 0.0, 0.0, 0.0, 0.0)
    if not is_floating(own.dtype):
        return _judged_exactly(result, own, nearby, is_near_tie)
    result64, own64 = result.astype(np.float64), own.astype(np.float64)
    if tolerance is not None:
        units = allclose(result64, own64, tolerance.rtol, tolerance.atol)
        worst = float(units.max(initial=0.0))
        verdict = Verdict(worst <= 1, worst, 0.0, 1.0, worst)
    else:
        float64 = own64 if value.float64 is None or value.float64.shape != own.shape else value.float64
        units = error_units(result64, own64, float64, own.dtype)
        own_units = error_units(own64, own64, float64, own.dtype)
        verdict = judge(units, [own_units], floor_units(own.dtype, longest_sum))
    return ("within budget" if verdict.passed else "differs"), verdict


_BY_NEAR_TIES = Verdict(True, 0.0, 0.0, 0.0, 0.0, "differs only by near ties decided differently")


def _judged_exactly(
    result: np.ndarray,
    own: np.ndarray,
    nearby: Callable[[], Sequence[np.ndarray]],
    is_near_tie: Callable[[np.ndarray], bool] | None,
) -> tuple[Status, Verdict]:
    """Compare integers or booleans: each must equal the reference's, or be a near tie."""
    if result.shape != own.shape:  # as many boxes as a near tie lets an engine keep
        return "decision", _BY_NEAR_TIES
    wrong = result != own
    for other in nearby():
        if other.shape == own.shape:
            wrong &= result != other
    count = int(wrong.sum())
    if not count or (is_near_tie is not None and is_near_tie(result)):
        return "decision", _BY_NEAR_TIES
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
