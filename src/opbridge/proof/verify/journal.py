"""The record of a verification of many cases, so that it can be resumed after an interruption and report its progress.

The cases that passed are recorded in a file of the user's cache, whose name is a hash of everything that the result
depends on. A verification that finds such a file does not run these cases again. The file is deleted once the result is
recorded. A case that did not pass is run again, because its failure is examined.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.bundle.bundle import Bundle
from opbridge.engines.base import Engine
from opbridge.errors import InputError
from opbridge.kernels.cache import cache_folder
from opbridge.proof.progress import Count
from opbridge.proof.verify.modes import Given
from opbridge.proof.verify.verification import CaseResult, Comparison

__all__ = ["EngineJournal", "Journal", "Passed"]

_KEPT_SECONDS = 30 * 24 * 3600.0


@dataclasses.dataclass(frozen=True)
class Passed:
    """A case that passed in an earlier, interrupted verification.

    Attributes:
        result: The case.
        comparisons: The comparisons of the case's outputs.
    """

    result: CaseResult
    comparisons: tuple[Comparison, ...]


class Journal:
    """The journal of one verification, for all its engines.

    Args:
        key: Everything that the results depend on, as JSON data; None if nothing is to be recorded.
        total: The number of cases of each engine; None if that is not known.
        report: A callback that receives the progress.
    """

    def __init__(
        self,
        key: Mapping[str, Any] | None = None,
        total: int | None = None,
        report: Callable[[str], None] = lambda doing: None,
    ) -> None:
        self._total = total
        self._report = report
        self._file: Path | None = None
        self._known: dict[str, Passed] = {}
        if key is not None:
            name = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()
            self._file = cache_folder() / "verifications" / f"{name}.jsonl"
            _delete_old(self._file.parent)
            self._known = _read(self._file)

    @classmethod
    def of_bundle(
        cls,
        bundle: Bundle,
        engines: Sequence[Engine],
        inputs: Given | None,
        settings: Sequence[float | None],
        report: Callable[[str], None] = lambda doing: None,
    ) -> Journal:
        """The journal of a bundle's verification; cases are recorded only if the inputs are the user's own.

        Args:
            bundle: The bundle.
            engines: The engines that are verified.
            inputs: The user's own inputs.
            settings: The seed and the tolerances, on which the results depend.
            report: A callback that receives the progress.
        """
        if inputs is None:
            return cls(report=report)
        key = {
            "bundle": bundle.manifest["sha256"],
            "options": list(settings),
            "engines": {engine.name: engine.version for engine in engines},
            "packages": {name: _version(name) for name in ("opbridge", "torch", "numpy", "onnx")},
        }
        return cls(key, len(inputs), report)

    def of_engine(self, label: str, reference: str = "") -> EngineJournal:
        """The part of the journal for one engine.

        Args:
            label: The engine's label.
            reference: The identity of the reference, on which the results depend too.
        """
        self._report(f"verifying on {label}")
        return EngineJournal(self, label, reference)

    @property
    def is_kept(self) -> bool:
        """Whether cases are recorded."""
        return self._file is not None

    def finish(self) -> None:
        """Delete the file, because the result is recorded."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)

    def find(self, key: str) -> Passed | None:
        """The case that was recorded under this key."""
        return self._known.get(key)

    def record(self, key: str, passed: Passed) -> None:
        """Record a case. If the file can't be written, the verification continues, and can't be resumed."""
        assert self._file is not None
        line = {"key": key, "result": passed.result.to_dict(), "comparisons": [c.to_dict() for c in passed.comparisons]}
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")

    def report_case(self, label: str, done: int, case: str) -> None:
        """Report that a case begins."""
        if self._total is None:
            self._report(f"verifying on {label}: {case}")
        else:
            self._report(Count(f"verifying on {label}", done, self._total, case))


class EngineJournal:
    """The cases of one engine. The first is always run, because traces and repeated runs need it.

    Attributes:
        reference: The identity of the reference; it may become known only while the first case is run.
    """

    def __init__(self, journal: Journal, label: str, reference: str) -> None:
        self.reference = reference
        self._journal = journal
        self._label = label
        self._begun = 0

    def again(self) -> None:
        """Begin with the first case again."""
        self._begun = 0

    def begin(self, name: str, feeds: Mapping[str, np.ndarray]) -> Passed | None:
        """Report that a case begins, and return its result if it passed in an interrupted verification."""
        self._journal.report_case(self._label, self._begun, name)
        self._begun += 1
        if self._begun == 1 or not self._journal.is_kept:
            return None
        return self._journal.find(self._key(name, feeds))

    def end(self, feeds: Mapping[str, np.ndarray], result: CaseResult, comparisons: Sequence[Comparison]) -> None:
        """Record a case that was run, if it passed."""
        if result.verdict == "passed" and self._journal.is_kept:
            self._journal.record(self._key(result.name, feeds), Passed(result, tuple(comparisons)))

    def _key(self, name: str, feeds: Mapping[str, np.ndarray]) -> str:
        digest = hashlib.sha256(json.dumps([self._label, self.reference, name]).encode())
        for key in sorted(feeds):
            array = np.ascontiguousarray(feeds[key])
            digest.update(f"{key} {array.dtype} {array.shape} ".encode())
            digest.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
        return digest.hexdigest()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read(file: Path) -> dict[str, Passed]:
    """The content of the file, without a line that was only partly written when the process ended."""
    known = {}
    with contextlib.suppress(OSError):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError, InputError):
                data = json.loads(line)
                comparisons = tuple(Comparison.from_dict(item) for item in data["comparisons"])
                known[data["key"]] = Passed(CaseResult.from_dict(data["result"]), comparisons)
    return known


def _delete_old(folder: Path) -> None:
    """Delete the journals of verifications that were not resumed for a month."""
    with contextlib.suppress(OSError):
        for file in folder.glob("*.jsonl"):
            if time.time() - file.stat().st_mtime > _KEPT_SECONDS:
                file.unlink(missing_ok=True)
