"""A bundle's proof in plain words: what was exported, for which engines, and whether it is equal to PyTorch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from opbridge.proof.verify.verification import NOT_RUN, NOT_VERIFIED, PASSING, PYTORCH, tolerance_text
from opbridge.report.tables import plural

__all__ = ["EngineResult", "Summary", "badness", "engine_results", "passes", "sizes", "summarise", "times"]

Tone = Literal["good", "bad", "open"]


@dataclasses.dataclass(frozen=True)
class EngineResult:
    """What came of one engine.

    Attributes:
        engine: Its label: "onnxruntime", "onnxruntime with kernels".
        verdict: As in :class:`~opbridge.verification.Verification`.
        reason: Why it did not run, or its first error; empty otherwise.
        cases: How many sets of inputs were tried.
        failed: How many of them did not pass.
        worst: The comparison that came closest to its budget, or went furthest beyond; None where there is none.
    """

    engine: str
    verdict: str
    reason: str
    cases: int
    failed: int
    worst: Mapping[str, Any] | None

    @property
    def tone(self) -> Tone:
        """Whether this is good news."""
        return "good" if self.verdict == "passed" else "bad" if self.verdict in ("failed", "error") else "open"


@dataclasses.dataclass(frozen=True)
class Summary:
    """The verdict for a reader who knows nothing of the model's insides.

    Attributes:
        tone: "good", "bad", or "open" where nothing was proved or refuted.
        title: The verdict in a few words.
        sentences: What was done, what came out, and how far it is from the limit.
        engines: The result of each engine.
    """

    tone: Tone
    title: str
    sentences: tuple[str, ...]
    engines: tuple[EngineResult, ...]


def summarise(data: Mapping[str, Any]) -> Summary:
    """The summary of ``Bundle.to_dict()``."""
    verification = data.get("verification")
    exported = _exported(data["manifest"])
    if verification is None:
        return Summary("open", "Not verified", (exported, "It was not compared with PyTorch yet."), ())
    engines = engine_results(verification)
    reference = "PyTorch" if verification.get("reference", PYTORCH) == PYTORCH else "the original model"
    verdict = verification["verdict"]
    tolerance = verification.get("tolerance")
    equal = "Equal to"
    judged: tuple[str, ...] = ()
    if tolerance:
        equal = "Within the given tolerance of"
        limits = f"{tolerance_text(tolerance)} against {reference}’s own result"
        judged = (f"The limit is a tolerance that was given, {limits}, not the error budget that opbridge works out.",)
    if verdict == "passed":
        sentences = (exported, *_sound(verification, engines, reference), *judged)
        return Summary("good", f"{equal} {reference}", sentences, engines)
    if verdict == "failed":
        found = _unsound(verification, engines, reference)
        return Summary("bad", f"Not {equal.lower()} {reference}", (exported, *found, *judged), engines)
    if verdict == "error":
        return Summary("bad", "Not proved: the engine failed", (exported, *_errors(engines)), engines)
    ran = [result for result in engines if result.verdict == "passed"]
    title = f"{equal} {reference} where it ran" if ran else "Not verified" if verdict == NOT_VERIFIED else "Not run"
    sound = _sound(verification, ran, reference) if ran else ()
    return Summary("open", title, (exported, *sound, *judged, *_errors(engines)), engines)


def engine_results(verification: Mapping[str, Any]) -> tuple[EngineResult, ...]:
    """The result of each engine of ``Verification.to_dict()``, in the order in which they were verified."""
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
    """Whether a status is sound."""
    return status in PASSING


def badness(comparison: Mapping[str, Any]) -> tuple[bool, float]:
    """Orders comparisons and traced values by how far they are from the limit."""
    ratio = float(comparison["ratio"])
    return not passes(comparison["status"]), math.inf if math.isnan(ratio) else ratio


def sizes(case: Mapping[str, Any]) -> str:
    """The sizes of a case's dynamic dimensions: ``"n=2, length=7"``."""
    return ", ".join(f"{name}={size}" for name, size in case["sizes"].items())


def times(ratio: float) -> str:
    """How much of the allowed error was used: ``"2.6 %"``, ``"340 times"``."""
    if not math.isfinite(ratio):
        return "infinitely often"
    if ratio < 1:
        return f"{100 * ratio:.2g} %" if ratio >= 1e-3 or ratio == 0 else "less than 0.1 %"
    return f"{float(f'{ratio:.3g}'):,g} times" if ratio < 1e6 else "more than a million times"


def listed(names: Sequence[str]) -> str:
    """``"a"``, ``"a and b"``, ``"a, b and c"``."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _exported(manifest: Mapping[str, Any]) -> str:
    versions = manifest.get("versions", {})
    names = list(dict.fromkeys(name for model in manifest["models"] for name in model["engines"]))
    engines = [name if "==" in name or name not in versions else f"{name} {versions[name]}" for name in names]
    mended = sum(operator["rung"] not in ("native", "opset") for operator in manifest.get("operators", ()))
    bridged = f" {plural(mended, 'operator')} had to be bridged." if mended else ""
    return f"{manifest.get('entry') or 'A model'} was exported for {listed(engines)}.{bridged}"


def _sound(verification: Mapping[str, Any], engines: Sequence[EngineResult], reference: str) -> tuple[str, ...]:
    cases = max((result.cases for result in engines), default=0)
    # With its kernels and without is one engine.
    count = len({result.engine.partition(" with ")[0] for result in engines})
    who = "the engine" if count == 1 else "every engine" if count > 2 else "both engines"
    near = " to within the tolerance" if verification.get("tolerance") else ""
    compared = f"On {plural(cases, 'set')} of inputs {who} computed what {reference} computes{near}."
    worst = max((result.worst for result in engines if result.worst is not None), key=badness, default=None)
    if worst is None or not worst["budget"]:
        return (compared, "All results are equal, bit for bit.") if _all_equal(verification) else (compared,)
    used = times(float(worst["ratio"]))
    return compared, f"The output that came closest to the limit, {worst['output']}, used {used} of the allowed error."


def _all_equal(verification: Mapping[str, Any]) -> bool:
    return all(comparison["status"] == "equal" for comparison in verification["comparisons"])


def _unsound(verification: Mapping[str, Any], engines: Sequence[EngineResult], reference: str) -> tuple[str, ...]:
    found = []
    for result in engines:
        if result.verdict == "failed" and result.worst is not None and not passes(result.worst["status"]):
            where = f"{result.failed} of {plural(result.cases, 'set')} of inputs"
            found.append(f"On {where}, {result.engine} did not compute what {reference} computes. {_how(result.worst)}")
        elif result.verdict == "failed":
            found.append(f"{result.engine}: {result.reason or 'the captured graph is not what the module computes'}.")
    for departure in verification.get("departures", ()):
        first = departure["first"]
        if departure["verdict"] == "departs" and first is not None:
            origin = f", made of {first['target'].removesuffix('.default')}" if first["target"] else ""
            place = f" at {first['source']}" if first["source"] else ""
            found.append(f"The first node that departs is {first['node']} ({first['operator']}{origin}{place}).")
            break
    return (*found, *_errors([result for result in engines if result.verdict != "failed"]))


def _how(worst: Mapping[str, Any]) -> str:
    ratio = float(worst["ratio"])
    if worst["status"] == "differs" and worst["budget"] and ratio > 1:
        return f"The output {worst['output']} is off by {times(ratio)} the allowed error."
    return f"The output {worst['output']}: {worst['detail'] or worst['status']}."


def _errors(engines: Sequence[EngineResult]) -> tuple[str, ...]:
    return tuple(
        f"{result.engine}: {result.verdict}. {result.reason}".strip()
        for result in engines
        if result.verdict == "error" or result.verdict in (*NOT_RUN, NOT_VERIFIED)
    )
