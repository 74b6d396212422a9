"""The summary of a verified bundle: what was exported, for which engines, and whether it matches PyTorch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from opbridge.engines.base import NOT_RUN
from opbridge.proof.verify.verification import NOT_VERIFIED, PASSING, PYTORCH, status_words, tolerance_text
from opbridge.report.tables import plural

__all__ = ["CLAIM", "EngineResult", "Summary", "badness", "engine_results", "passes", "sizes", "summarise", "times"]

Tone = Literal["good", "bad", "open"]


@dataclasses.dataclass(frozen=True)
class EngineResult:
    """The result of one engine.

    Attributes:
        engine: The engine's label, such as "onnxruntime" or "onnxruntime with kernels".
        verdict: The verdict of :class:`~opbridge.proof.verify.verification.Verification`.
        reason: Why the engine did not run, or its first error; empty otherwise.
        cases: The number of sets of inputs.
        failed: The number of sets of inputs that did not pass.
        worst: The comparison that used the largest share of its tolerance; None if there are no comparisons.
    """

    engine: str
    verdict: str
    reason: str
    cases: int
    failed: int
    worst: Mapping[str, Any] | None

    @property
    def tone(self) -> Tone:
        """How the result is shown: "good", "bad" or "open"."""
        return "good" if self.verdict == "passed" else "bad" if self.verdict in ("failed", "error") else "open"


@dataclasses.dataclass(frozen=True)
class Summary:
    """The verdict for a reader who does not know the model.

    Attributes:
        tone: "good", "bad", or "open" if there is no verdict.
        title: The verdict in a few words.
        sentences: What was exported, the result, and the share of the tolerance that was used.
        engines: The result of each engine.
    """

    tone: Tone
    title: str
    sentences: tuple[str, ...]
    engines: tuple[EngineResult, ...]


CLAIM = (
    "This result is what the bundle says of itself: it was not verified by you on this machine. "
    "Run opbridge verify to check it."
)


def summarise(data: Mapping[str, Any]) -> Summary:
    """The summary of ``Bundle.to_dict()``."""
    found = _summary(data)
    if not data.get("claim"):
        return found
    title = f"Claimed, not checked here: {found.title[:1].lower()}{found.title[1:]}"
    return dataclasses.replace(found, tone="open", title=title, sentences=(*found.sentences, CLAIM))


def _summary(data: Mapping[str, Any]) -> Summary:
    verification = data.get("verification")
    exported = _exported(data["manifest"])
    if verification is None:
        return Summary("open", "Not verified", (exported, "It has not been compared with PyTorch yet."), ())
    engines = engine_results(verification)
    reference = "PyTorch" if verification.get("reference", PYTORCH) == PYTORCH else "the original model"
    verdict = verification["verdict"]
    tolerance = verification.get("tolerance")
    matches, mismatches = "Matches", "Does not match"
    judged: tuple[str, ...] = ()
    if tolerance:
        matches, mismatches = "Within the given tolerance of", "Not within the given tolerance of"
        given = tolerance_text(tolerance)
        judged = (f"The tolerance was given by the user ({given}); opbridge did not compute one.",)
    if verdict == "passed":
        sentences = (exported, *_passed(verification, engines, reference), *judged)
        assumed = verification.get("assumptions", ())
        if assumed:
            sentences = (*sentences, *(f"Assumed: {assumption}." for assumption in assumed))
            title = f"{matches} {reference} under {plural(len(assumed), 'assumption')}"
            return Summary("open", title, sentences, engines)
        return Summary("good", f"{matches} {reference}", sentences, engines)
    if verdict == "failed":
        found = _mismatches(verification, engines, reference)
        return Summary("bad", f"{mismatches} {reference}", (exported, *found, *judged), engines)
    if verdict == "error":
        return Summary("bad", "Not verified: the engine failed", (exported, *_errors(engines)), engines)
    ran = [result for result in engines if result.verdict == "passed"]
    without = "Not verified" if verdict == NOT_VERIFIED else "Not run"
    title = f"{matches} {reference} on the engines that ran" if ran else without
    passed = _passed(verification, ran, reference) if ran else ()
    return Summary("open", title, (exported, *passed, *judged, *_errors(engines)), engines)


def engine_results(verification: Mapping[str, Any]) -> tuple[EngineResult, ...]:
    """The result of each engine in ``Verification.to_dict()``, in the order of verification."""
    each = verification.get("engines") or [
        {"engine": verification["engine"], "verdict": verification["verdict"], "error": verification.get("error")}
    ]
    several = len(each) > 1
    found = []
    for one in each:
        label = one["engine"] if several else ""
        cases = [case for case in verification["cases"] if case.get("engine", "") in ("", label) or not several]
        rows = [row for row in verification["comparisons"] if not several or row.get("engine", "") == label]
        failed = sum(case["verdict"] != "passed" for case in cases)
        worst = max(rows, key=badness, default=None)
        found.append(EngineResult(one["engine"], one["verdict"], one.get("error") or "", len(cases), failed, worst))
    return tuple(found)


def passes(status: str) -> bool:
    """Whether a comparison with this status passes."""
    return status in PASSING


def badness(comparison: Mapping[str, Any]) -> tuple[bool, float]:
    """A sort key for comparisons and traced values: failing ones last, then by the share of the tolerance used."""
    ratio = float(comparison["ratio"])
    return not passes(comparison["status"]), math.inf if math.isnan(ratio) else ratio


def sizes(case: Mapping[str, Any]) -> str:
    """The sizes of a case's dynamic dimensions: ``"n=2, length=7"``."""
    return ", ".join(f"{name}={size}" for name, size in case["sizes"].items())


def times(ratio: float) -> str:
    """The error relative to the tolerance: ``"2.6%"``, ``"340 times"``."""
    if not math.isfinite(ratio):
        return "infinitely many times"
    if ratio < 1:
        return f"{100 * ratio:.2g}%" if ratio >= 1e-3 or ratio == 0 else "less than 0.1%"
    return f"{float(f'{ratio:.3g}'):,g} times" if ratio < 1e6 else "more than a million times"


def listed(names: Sequence[str]) -> str:
    """``"a"``, ``"a and b"``, ``"a, b and c"``."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _exported(manifest: Mapping[str, Any]) -> str:
    versions = manifest.get("versions", {})
    names = list(dict.fromkeys(name for model in manifest["models"] for name in model["engines"]))
    engines = [name if "==" in name or name not in versions else f"{name} {versions[name]}" for name in names]
    count = sum(operator["rung"] not in ("native", "opset") for operator in manifest.get("operators", ()))
    converted = f" {plural(count, 'operator')} needed a custom mapping or kernel." if count else ""
    return f"{manifest.get('entry') or 'A model'} was exported for {listed(engines)}.{converted}"


def _passed(verification: Mapping[str, Any], engines: Sequence[EngineResult], reference: str) -> tuple[str, ...]:
    cases = max((result.cases for result in engines), default=0)
    # An engine that was verified with its kernels and without them counts once.
    count = len({result.engine.partition(" with ")[0] for result in engines})
    who = "all engines" if count > 2 else "both engines"
    outputs = "All outputs match" if count == 1 else f"All outputs of {who} match"
    compared = f"{outputs} {reference} on {plural(cases, 'set')} of inputs."
    worst = max((result.worst for result in engines if result.worst is not None), key=badness, default=None)
    if _all_equal(verification):
        return compared, "All outputs are bitwise identical."
    if worst is None or not worst["budget"]:
        return (compared,)
    used = times(float(worst["ratio"]))
    return compared, f"The largest error, in output {worst['output']}, is {used} of the tolerance."


def _all_equal(verification: Mapping[str, Any]) -> bool:
    return all(comparison["status"] == "equal" for comparison in verification["comparisons"])


def _mismatches(verification: Mapping[str, Any], engines: Sequence[EngineResult], reference: str) -> tuple[str, ...]:
    found = []
    for result in engines:
        if result.verdict == "failed" and result.worst is not None and not passes(result.worst["status"]):
            where = f"{result.failed} of {plural(result.cases, 'set')} of inputs"
            found.append(f"{result.engine} does not match {reference} on {where}. {_how(result.worst)}")
        elif result.verdict == "failed":
            found.append(
                f"{result.engine}: {result.reason or 'the captured graph and the module give different results'}."
            )
    for divergence in verification.get("divergences", ()):
        first = divergence["first"]
        if divergence["verdict"] == "diverges" and first is not None:
            origin = f", from {first['target'].removesuffix('.default')}" if first["target"] else ""
            place = f" at {first['source']}" if first["source"] else ""
            found.append(f"The first mismatching node is {first['node']} ({first['operator']}{origin}{place}).")
            break
    return (*found, *_errors([result for result in engines if result.verdict != "failed"]))


def _how(worst: Mapping[str, Any]) -> str:
    ratio = float(worst["ratio"])
    if worst["status"] == "differs" and worst["budget"] and ratio > 1:
        return f"The error of output {worst['output']} is {times(ratio)} the tolerance."
    return f"Output {worst['output']}: {worst['detail'] or status_words(worst['status'])}."


def _errors(engines: Sequence[EngineResult]) -> tuple[str, ...]:
    return tuple(
        f"{result.engine}: {result.verdict}. {result.reason}".strip()
        for result in engines
        if result.verdict == "error" or result.verdict in (*NOT_RUN, NOT_VERIFIED)
    )
