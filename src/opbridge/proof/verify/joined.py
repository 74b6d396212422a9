"""The verifications of several engines as one, including engines that did not run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from opbridge.engines.base import NOT_RUN, NotRun
from opbridge.proof.verify.verification import DEFAULT_SEED, EngineVerdict, Verification

__all__ = ["joined", "not_run", "with_note"]


def joined(results: Sequence[Verification]) -> Verification:
    """One verification, which fails if any of ``results`` fails; its error is that of the first that did not pass.

    An engine that ran and failed precedes an engine that did not run.
    """
    if len(results) == 1:
        return results[0]
    not_passed = sorted((result for result in results if not result.passed), key=lambda item: item.verdict in NOT_RUN)
    worst = not_passed[0] if not_passed else results[0]
    keys = dict.fromkeys(key for result in results for key in result.seconds)
    return dataclasses.replace(
        worst,
        seconds={key: sum(result.seconds.get(key, 0.0) for result in results) for key in keys},
        engine=", ".join(result.engine for result in results),
        cases=_of_all(results, "cases"),
        comparisons=_of_all(results, "comparisons"),
        divergences=_of_all(results, "divergences"),
        traces=_of_all(results, "traces"),
        timings=_of_all(results, "timings"),
        special_values=_of_all(results, "special_values"),
        crashes=_of_all(results, "crashes"),
        engines=tuple(EngineVerdict(result.engine, result.verdict, result.error) for result in results),
        reference="; ".join(dict.fromkeys(result.reference for result in results)),
        resumed=sum(result.resumed for result in results),
    )


def with_note(result: Verification, note: str) -> Verification:
    """A verification with a note for the reader, which is added to its first case."""
    cases = [dataclasses.replace(case, notes=(*case.notes, note)) for case in result.cases[:1]]
    return dataclasses.replace(result, cases=(*cases, *result.cases[1:]))


def _of_all(results: Sequence[Verification], field: str) -> tuple[Any, ...]:
    """The items of a field of all results, each with the name of its engine."""
    return tuple(
        dataclasses.replace(item, engine=result.engine) for result in results for item in getattr(result, field)
    )


def not_run(label: str, why: NotRun, seed: int | None) -> Verification:
    """The verification of an engine that can't run models on this machine; it never passes."""
    error = f"{why.reason} {why.fix}"
    return Verification(label, why.verdict, (), (), {}, DEFAULT_SEED if seed is None else seed, error=error)
