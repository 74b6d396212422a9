"""What a verification tries after its cases, where it was asked to: special values, and a small failing input."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from opbridge.errors import OpbridgeError
from opbridge.proof.verify.cases import Case, Cases
from opbridge.proof.verify.judgement import Judgement
from opbridge.proof.verify.modes import REQUIRE, Arrays, Modes
from opbridge.proof.verify.options import Tolerance
from opbridge.proof.verify.small_input import SmallInput
from opbridge.proof.verify.special import special_feeds
from opbridge.proof.verify.special_values import SpecialValues
from opbridge.proof.verify.verification import CaseResult, Verification

__all__ = ["Further", "completed"]


class Further:
    """What is tried after the cases of one verification.

    Args:
        cases: Makes the inputs, and runs PyTorch.
        names: The outputs.
        engine: Runs the engine.
        tolerance: Instead of the error budget.
        seed: Of all that is random.
    """

    def __init__(
        self,
        cases: Cases,
        names: Sequence[str],
        engine: Callable[[Arrays], Arrays],
        tolerance: Tolerance | None,
        seed: int,
    ) -> None:
        self._cases = cases
        self._names = names
        self._engine = engine
        self._tolerance = tolerance
        self._seed = seed
        self._first: Case | None = None
        self._failed: tuple[Case, str] | None = None
        self._special: tuple[SpecialValues, ...] = ()
        self._small: dict[str, str] = {}

    def saw(self, case: Case, result: CaseResult) -> None:
        """Remember a case that was checked."""
        self._first = self._first or case
        # Where the captured graph is wrong, the engine may be right.
        if self._failed is None and result.verdict != "passed" and result.eager_matches is not False:
            self._failed = case, result.verdict

    def run(self, modes: Modes, small: SmallInput | None) -> None:
        """Try what ``modes`` asks for; a small failing input goes to ``small``, if it is free."""
        if modes.special_values:
            self._special = self._cases.special_values(self._first, self._names, self._engine)
        if modes.shrink and small is not None and not small.name and self._failed is not None:
            case, verdict = self._failed
            feeds = self._cases.small(case, lambda feeds: self._fails(feeds, verdict), modes.shrink)
            # The search took near ties for faults, for speed; what it found must be a fault all the same.
            if not self._fails(feeds, verdict, thorough=True):
                feeds = self._cases.specs.feeds(case.flat)
            self._small[case.name] = small.keep(feeds)

    def departing(self) -> Iterator[tuple[str, Arrays, list[str]]]:
        """The kinds of special values of which something else comes out, with their inputs and these outputs."""
        flat = self._cases.specs.flat if self._first is None else self._first.flat
        wrong = {item.values: item.differences for item in self._special if item.verdict == "differs"}
        for kind, feeds in special_feeds(self._cases.specs.feeds(flat), self._seed) if wrong else ():
            if kind in wrong:
                yield kind, feeds, list(dict.fromkeys(difference.output for difference in wrong[kind]))

    def completed(self, found: Verification, modes: Modes) -> Verification:
        """A verification with what was found here."""
        return completed(found, modes, self._special, self._small)

    def _fails(self, feeds: Arrays, verdict: str, thorough: bool = False) -> bool:
        """Whether the engine fails as it did: with another result, or with an error."""
        try:
            flat, run = self._cases.rerun(feeds)
        except Exception:
            return False  # PyTorch does not take them
        judgement = Judgement(self._cases.reference, "", flat, run, self._tolerance, self._seed)
        judgement.thorough = thorough
        try:
            found = judgement.compare(self._names, self._engine(feeds), lambda: self._engine(feeds))
        except OpbridgeError as error:
            return verdict == "error" and getattr(error, "cause", "") != "not started"
        finally:
            self._cases.run_seconds += judgement.run_seconds
        return verdict == "failed" and not all(comparison.passed for comparison in found)


def completed(
    found: Verification, modes: Modes, special: Sequence[SpecialValues], small: dict[str, str]
) -> Verification:
    """A verification with the special values, and the names of the files with small failing inputs by case.

    Special values count for the verdict only if they are required.
    """
    cases = tuple(dataclasses.replace(case, failing_input=small.get(case.name, "")) for case in found.cases)
    found = dataclasses.replace(found, cases=cases, special_values=tuple(special))
    if not found.passed or modes.special_values != REQUIRE or all(item.passed for item in special):
        return found
    text = "special values are required to come out as in PyTorch, and some do not"
    return dataclasses.replace(found, verdict="failed", error=text)
