"""What a verification against an ONNX model tries after its cases: special values, and a small failing input."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from opbridge.errors import OpbridgeError
from opbridge.proof.verify.further import completed
from opbridge.proof.verify.modes import Modes
from opbridge.proof.verify.onnx_inputs import OnnxInputs
from opbridge.proof.verify.onnx_judgement import ModelJudgement
from opbridge.proof.verify.onnx_reference import Feeds, OriginalRun
from opbridge.proof.verify.shrinking import Shrinkable, shrunk
from opbridge.proof.verify.small_input import SmallInput
from opbridge.proof.verify.special import examined
from opbridge.proof.verify.special_values import SpecialValues
from opbridge.proof.verify.verification import Verification

__all__ = ["ModelFurther"]


@dataclasses.dataclass
class ModelFurther:
    """What is tried after the cases of one verification.

    Attributes:
        run_original: Runs the original; raises where it does not take the inputs.
        run_engine: Runs the engine.
        judgement: Of some inputs and what the original makes of them.
        random: The outputs that depend on random draws.
        seed: Of all that is random.
        inputs: The model's inputs, where they are known.
    """

    run_original: Callable[[Feeds], OriginalRun]
    run_engine: Callable[[Feeds], Feeds]
    judgement: Callable[[str, Feeds, OriginalRun], ModelJudgement]
    random: frozenset[str]
    seed: int
    inputs: OnnxInputs | None = None
    _first: Feeds | None = None
    _failed: tuple[str, Feeds, str] | None = None
    _special: tuple[SpecialValues, ...] = ()
    _small: dict[str, str] = dataclasses.field(default_factory=dict)

    def saw(self, case: str, feeds: Feeds, verdict: str) -> None:
        """Remember a case that was checked."""
        self._first = feeds if self._first is None else self._first
        if self._failed is None and verdict != "passed":
            self._failed = case, feeds, verdict

    def forget(self) -> None:
        """Begin again: another engine runs the original."""
        self._first = self._failed = None

    def run(self, modes: Modes, small: SmallInput | None) -> None:
        """Try what ``modes`` asks for; a small failing input goes to ``small``, if it is free."""
        if modes.special_values and self._first is not None:
            found = examined(self._first, self._outputs, self.run_engine, seed=self.seed)
            self._special = tuple(found)
        if modes.shrink and small is not None and not small.name and self._failed is not None:
            case, feeds, verdict = self._failed
            sizes = {} if self.inputs is None else self.inputs.sizes_of(feeds)
            found_input = Shrinkable(
                feeds=feeds,
                sizes=sizes,
                lowest=dict.fromkeys(sizes, 1),
                resized=self._resized,
                fails=lambda tried: self._fails(tried, verdict),
            )
            self._small[case] = small.keep(shrunk(found_input, modes.shrink))

    def completed(self, found: Verification, modes: Modes) -> Verification:
        """A verification with what was found here."""
        return completed(found, modes, self._special, self._small)

    def _outputs(self, feeds: Feeds) -> tuple[Feeds, Feeds]:
        run = self.run_original(feeds)
        own = {name: array for name, array in run.own.items() if name not in self.random}
        return own, own if run.wide is None else run.wide

    def _resized(self, feeds: Feeds, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        assert self.inputs is not None
        return self.inputs.resized(feeds, sizes)

    def _fails(self, feeds: Feeds, verdict: str) -> bool:
        """Whether the engine fails as it did: with another result, or with an error."""
        try:
            run = self.run_original(feeds)
        except OpbridgeError:
            return False  # the original does not take them
        try:
            found = self.judgement("", feeds, run).compare(self.run_engine(feeds), self.run_engine)
        except OpbridgeError as error:
            return verdict == "error" and getattr(error, "cause", "") != "not started"
        return verdict == "failed" and not all(comparison.passed for comparison in found)
