"""The extra checks that follow the cases, if they are requested: special values, and a small failing input."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from opbridge.errors import EngineCrashError, OpbridgeError
from opbridge.proof.verify.judgement import Judgement
from opbridge.proof.verify.modes import REQUIRE, Modes
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference import Case, Feeds, Reference
from opbridge.proof.verify.shrinking import Shrinkable, shrunk
from opbridge.proof.verify.small_input import SmallInput
from opbridge.proof.verify.special import OutsideContract, examined, special_feeds
from opbridge.proof.verify.special_values import SpecialValues
from opbridge.proof.verify.verification import CaseResult, Verification

__all__ = ["ExtraChecks"]


class ExtraChecks:
    """The extra checks of one verification.

    Args:
        reference: The reference.
        engine: Runs the engine.
        options: How to verify.
    """

    def __init__(self, reference: Reference, engine: Callable[[Feeds], Feeds], options: VerifyOptions) -> None:
        self._reference = reference
        self._engine = engine
        self._tolerance = options.tolerance
        self._seed = options.seed
        self._first: Case | None = None
        self._failed: tuple[Case, str] | None = None
        self._special: tuple[SpecialValues, ...] = ()
        self._small: dict[str, str] = {}

    def add(self, case: Case, result: CaseResult) -> None:
        """Record a checked case."""
        self._first = self._first or case
        # If the captured graph is wrong, the engine may be right.
        if self._failed is None and result.verdict != "passed" and result.eager_matches is not False:
            self._failed = case, result.verdict

    def forget(self) -> None:
        """Drop the recorded cases, because another engine runs the reference from now on."""
        self._first = self._failed = None

    def run(self, modes: Modes, small: SmallInput | None) -> None:
        """Run the checks that ``modes`` requests; a small failing input is stored in ``small`` if there is none yet."""
        if modes.special_values and self._first is not None:
            self._special = tuple(examined(self._first.feeds, self._outputs, self._engine, seed=self._seed))
        if modes.shrink and small is not None and not small.name and self._failed is not None:
            case, verdict = self._failed
            feeds = shrunk(self._shrinkable(case, verdict), modes.shrink)
            # To save time, the search counts near ties as faults; the input that it finds must show a real fault.
            if not self._fails(feeds, verdict, thorough=True):
                feeds = case.feeds
            self._small[case.name] = small.keep(feeds)

    def differing_special_values(self) -> Iterator[tuple[str, Feeds, list[str]]]:
        """The kinds of special values for which outputs differ, with the inputs and the names of these outputs."""
        wrong = {item.values: item.differences for item in self._special if item.verdict == "differs"}
        if self._first is None or not wrong:
            return
        for kind, feeds in special_feeds(self._first.feeds, self._seed):
            if kind in wrong:
                yield kind, feeds, list(dict.fromkeys(difference.output for difference in wrong[kind]))

    def completed(self, found: Verification, modes: Modes) -> Verification:
        """A verification with the special values and the names of the files of small failing inputs.

        Special values count for the verdict only if they are required.
        """
        cases = tuple(dataclasses.replace(case, failing_input=self._small.get(case.name, "")) for case in found.cases)
        found = dataclasses.replace(found, cases=cases, special_values=self._special)
        if not found.passed or modes.special_values != REQUIRE or all(item.passed for item in self._special):
            return found
        text = "special values are required to give the same results as in PyTorch, and some do not"
        return dataclasses.replace(found, verdict="failed", error=text)

    def _outputs(self, feeds: Feeds) -> tuple[Feeds, Feeds]:
        """Both results of the reference, without the outputs that depend on random draws."""
        run = self._reference.run(feeds)
        if run.nan:
            raise OutsideContract(run.nan)
        return {name: array for name, array in run.own.items() if name not in run.random}, run.float64

    def _shrinkable(self, case: Case, verdict: str) -> Shrinkable:
        sizes = self._reference.sizes_of(case.feeds)
        return Shrinkable(
            feeds=case.feeds,
            sizes=sizes,
            lowest={name: self._reference.lowest(name) for name in sizes},
            resized=self._reference.resized,
            fails=lambda feeds: self._fails(feeds, verdict),
        )

    def _fails(self, feeds: Feeds, verdict: str, thorough: bool = False) -> bool:
        """Whether the engine fails in the same way: with another result, or with an error."""
        try:
            run = self._reference.run(feeds)
        except Exception:
            return False  # the reference does not accept these inputs
        judgement = Judgement(self._reference, "", feeds, run, self._tolerance, self._seed)
        judgement.thorough = thorough
        try:
            found = judgement.compare(self._engine(feeds), lambda: self._engine(feeds))
        except OpbridgeError as error:
            return verdict == "error" and not (isinstance(error, EngineCrashError) and error.cause == "not started")
        return verdict == "failed" and not all(comparison.passed for comparison in found)
