"""The protocol of a reference: what an engine is compared with, a captured PyTorch program or an ONNX model."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from opbridge.proof.bisect.intermediates import ReferenceValues
from opbridge.proof.verify.journal import EngineJournal, Passed
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.verification import CaseResult
from opbridge.torch_graph.origins import Origin

__all__ = ["Case", "Feeds", "NearTies", "Reference", "Restart", "Run", "Runs", "Unverifiable"]

Feeds = Mapping[str, np.ndarray]
"""Arrays by ONNX name."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What the reference computes from one set of inputs.

    Attributes:
        own: The outputs in the model's own types, in the model's order.
        wide: The outputs in float64; for an output that is not a floating-point one, the decision of the float64 run.
        trusted: For each floating-point output, where the float64 result is more precise than ``own``. Elsewhere
            ``wide`` shows no rounding error of ``own``, and only perturbed runs do.
        random: The outputs that depend on random draws.
        longest_sum: The number of terms of the longest sum in the model.
    """

    own: Feeds
    wide: Feeds
    trusted: Mapping[str, np.ndarray]
    random: frozenset[str] = frozenset()
    longest_sum: int = 1


class NearTies(Protocol):
    """The discrete decisions before some outputs, and which of them are near ties."""

    @property
    def objections(self) -> Mapping[str, str]:
        """Why a decision of the engine is wrong, by the name of the output that shows it."""

    def runs(self) -> Iterator[Run]:
        """Runs of the reference on the same inputs, with near ties decided differently; each is equally right."""


class Runs(Protocol):
    """What the judgement of one case needs of a reference."""

    @property
    def name(self) -> str:
        """What messages call the reference: "PyTorch", "the original"."""

    def run(self, feeds: Feeds, *, weights: np.random.Generator | None = None) -> Run:
        """Run the reference in the model's types and in float64.

        Args:
            feeds: The inputs.
            weights: If given and if the reference supports it, weights and constants are perturbed with this generator.

        Raises:
            Exception: Any exception that the reference raises for inputs that it does not accept.
        """

    def draw(self, feeds: Feeds, number: int) -> Feeds:
        """The outputs in the model's types with the random draws number ``number``."""

    def near_ties(self, feeds: Feeds, failing: Mapping[str, np.ndarray]) -> NearTies | None:
        """The near ties before outputs that do not fit, by the float64 margins of the decisions.

        Args:
            feeds: The inputs.
            failing: The engine's results for these outputs.

        Returns:
            None if the reference does not know the margins of its decisions; runs on perturbed inputs then show them.
        """


@dataclasses.dataclass
class Case:
    """Inputs that the reference accepts.

    Attributes:
        name: As in :class:`~opbridge.proof.verify.verification.CaseResult`.
        sizes: The size of every dynamic dimension, by the name that users read.
        feeds: The inputs.
        run: What the reference computes from them.
        eager: The outputs of the user's module, in the order of the model's; None if there is no module.
        notes: What a reader should know.
    """

    name: str
    sizes: Mapping[str, int]
    feeds: Feeds
    run: Run
    eager: Sequence[np.ndarray] | None = None
    notes: Sequence[str] = ()


class Restart:
    """Another engine runs the reference from now on: the results of earlier cases are void."""


class Unverifiable(Exception):
    """There is nothing to compare with; the message says why."""


class Reference(Runs, Protocol):
    """What an engine is compared with. Inputs, outputs and the values inside, each in the model's types and float64."""

    @property
    def label(self) -> str:
        """What results are compared with, in words; known after the first case."""

    @property
    def identity(self) -> str:
        """What results depend on, apart from the inputs and the engine; known after the first case."""

    @property
    def outputs(self) -> Sequence[str]:
        """The ONNX names of the expected outputs."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader should know of all cases."""

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
            Unverifiable: The reference runs nowhere.
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
        """The values inside the reference, by the names that they have in the engine's model.

        Args:
            feeds: The inputs.
            run: What the reference computes from them.
            origins: Which value of a captured graph each value of the engine's model is.
            most_bytes: The number of bytes of values to hold at a time.
        """

    def source_of(self, value: str, origins: Mapping[str, Origin]) -> str:
        """The user's line of a value of the engine's model; empty if that is not known."""
