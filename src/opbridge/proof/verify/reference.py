"""The protocol of a reference with which an engine is compared: a captured PyTorch program or an ONNX model."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from opbridge.proof.bisect.intermediates import ReferenceValues
from opbridge.proof.verify.journal import EngineJournal, Passed
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.verification import CaseResult
from opbridge.torch_graph.origins import Origin

__all__ = ["Case", "Feeds", "NearTies", "Observe", "Observed", "Reference", "Restart", "Run", "Runs", "Unverifiable"]

Feeds = Mapping[str, np.ndarray]
"""Arrays by ONNX name."""


@dataclasses.dataclass(frozen=True)
class Run:
    """The results of the reference for one set of inputs.

    Attributes:
        own: The outputs in the model's own types, in the model's order.
        float64: The outputs in float64; for discrete outputs, the decision of the float64 run.
        trusted: For each floating-point output, the elements whose float64 result is more precise than ``own``. For
            other elements, only perturbed runs show the rounding error of ``own``.
        random: The outputs that depend on random draws.
        longest_sum: The number of terms of the longest sum in the model.
        nan: The first value of PyTorch's run that is NaN outside the contract, in words; empty if there is none, or if
            the contract includes NaN.
        runs: How often each graph inside a captured graph ran, by its name.
    """

    own: Feeds
    float64: Feeds
    trusted: Mapping[str, np.ndarray]
    random: frozenset[str] = frozenset()
    longest_sum: int = 1
    nan: str = ""
    runs: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Observed:
    """What an engine computes inside its model on one case.

    Attributes:
        values: The engine's values, by the value of the captured graph that each is.
        outputs: Outputs of the same run. Observed, the model may be optimized otherwise and take other decisions.
    """

    values: Mapping[Origin, np.ndarray] = dataclasses.field(default_factory=dict)
    outputs: Feeds = dataclasses.field(default_factory=dict)


Observe = Callable[[Collection[str], Collection[str]], Observed]
"""Reads the engine's values of some nodes of the captured graph, and some outputs; what can't be read is left out."""


class NearTies(Protocol):
    """The discrete decisions that some outputs depend on, and which of them are near ties."""

    def followed(self, observe: Observe) -> Run | None:
        """The run of the reference with the engine's own decisions.

        Returns:
            None unless all decisions before the outputs are known and each is right or a near tie. The run is then the
            only one that the outputs may come from.
        """

    @property
    def objections(self) -> Mapping[str, str]:
        """Why a decision of the engine is wrong, by the name of the output that shows it."""

    def inferred(self) -> Iterator[Run]:
        """Runs with selections of rows that the outputs show, as the boxes of a detector do.

        Each selection is right or a near tie. All outputs must follow from it, as for :meth:`followed`.
        """

    def runs(self) -> Iterator[Run]:
        """Runs of the reference on the same inputs, with near ties decided differently; each is equally right."""


class Runs(Protocol):
    """The part of a reference that the judgement of one case uses."""

    @property
    def name(self) -> str:
        """The name of the reference in messages: "PyTorch", "the original"."""

    def run(self, feeds: Feeds, *, perturbing: np.random.Generator | None = None) -> Run:
        """Run the reference in the model's types and in float64.

        Args:
            feeds: The inputs.
            perturbing: If given and if the reference supports it, weights, constants, and in the model's types the
                matrices of linear systems, are perturbed with this generator.

        Raises:
            Exception: Any exception that the reference raises for inputs that it does not accept.
        """

    def draw(self, feeds: Feeds, number: int) -> Feeds:
        """The outputs in the model's types; each ``number`` is another random draw."""

    def near_ties(self, feeds: Feeds, failing: Mapping[str, np.ndarray]) -> NearTies | None:
        """The near ties that failing outputs depend on, according to the float64 margins of the decisions.

        Args:
            feeds: The inputs.
            failing: The engine's results for these outputs.

        Returns:
            The near ties; None if the reference does not know the margins of its decisions.
        """


@dataclasses.dataclass
class Case:
    """Inputs that the reference accepts.

    Attributes:
        name: The name, as in :class:`~opbridge.proof.verify.verification.CaseResult`.
        sizes: The size of every dynamic dimension, by the user's name.
        feeds: The inputs.
        run: The results of the reference.
        eager: The outputs of the user's module, in the order of the model's; None if there is no module.
        notes: Notes for the reader.
    """

    name: str
    sizes: Mapping[str, int]
    feeds: Feeds
    run: Run
    eager: Sequence[np.ndarray] | None = None
    notes: Sequence[str] = ()


class Restart:
    """Says that another engine runs the reference from now on, so the results of earlier cases are invalid."""


class Unverifiable(Exception):
    """There is no reference; the message says why."""


class Reference(Runs, Protocol):
    """A reference: its inputs, its outputs, and its intermediate values in the model's types and in float64."""

    @property
    def label(self) -> str:
        """A description of the reference; known after the first case."""

    @property
    def identity(self) -> str:
        """A text that changes with everything that results depend on, except for the inputs and the engine.

        It is known after the first case.
        """

    @property
    def outputs(self) -> Sequence[str]:
        """The ONNX names of the expected outputs."""

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the reader that concern all cases."""

    @property
    def run_seconds(self) -> float:
        """The time spent in runs."""

    def cases(self, options: VerifyOptions, journal: EngineJournal) -> Iterator[Case | CaseResult | Passed | Restart]:
        """The user's own inputs, or fresh ones.

        Yields:
            A case to run; the result of a case on which the reference itself fails; a case that passed in an
            interrupted verification; or a restart.

        Raises:
            InputError: The user's inputs do not fit.
            Unverifiable: No engine runs the reference.
        """

    def sizes_of(self, feeds: Feeds) -> Mapping[str, int]:
        """The sizes of the dynamic dimensions in these arrays."""

    def lowest(self, dimension: str) -> int:
        """The smallest allowed size of a dynamic dimension."""

    def resized(self, feeds: Feeds, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Arrays cut to smaller sizes of the dynamic dimensions."""

    def values(
        self, feeds: Feeds, run: Run, origins: Mapping[str, Origin], most_bytes: int
    ) -> contextlib.AbstractContextManager[ReferenceValues]:
        """The intermediate values of the reference, by their names in the engine's model.

        Args:
            feeds: The inputs.
            run: The results of the reference.
            origins: The value of the captured graph for each value of the engine's model.
            most_bytes: The number of bytes of values to hold at a time.
        """

    def source_of(self, value: str, origins: Mapping[str, Origin]) -> str:
        """The user's line of a value of the engine's model; empty if that is not known."""
