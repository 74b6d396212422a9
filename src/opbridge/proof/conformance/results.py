"""Results as data: one line of JSON per entry, element type and way through an exporter and an engine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opbridge.errors import InputError
from opbridge.records import StoredRecord

__all__ = ["STATUSES", "Result", "Way", "latest", "read_results"]

STATUSES = ("pass", "capture", "translate", "load", "run", "mismatch", "not applicable")
"""How an entry came out: passed, or the first stage that a sample did not survive."""


@dataclasses.dataclass(frozen=True)
class Way(StoredRecord):
    """How an entry is taken to an engine.

    Attributes:
        exporter: "opbridge", or "torch" for the plain ``torch.onnx.export``.
        engine: The engine's name.
        dynamic: Whether dimensions are dynamic and verified at a second size.
        samples: At most so many samples of each entry; 0 for all.
    """

    exporter: str = "opbridge"
    engine: str = "onnxruntime"
    dynamic: bool = False
    samples: int = 0


@dataclasses.dataclass(frozen=True)
class Result(StoredRecord):
    """How an entry came out in one element type.

    Attributes:
        entry: Its name in PyTorch's operator database.
        dtype: The element type.
        way: The exporter and the engine.
        status: One of :data:`STATUSES`: that of the first sample, in the order of the stages, that did not pass.
        counts: Samples by status; "not run" for those after the most failures that one entry is given.
        error: What went wrong with a sample of that status, in a line.
        sample: The sample, as a call: "(f32[2, 3], 1, keepdim=True)".
        rungs: The rung of each torch operator that no mapping of torch serves, over all samples.
        seconds: Time by stage.
        versions: Of torch and the engine.
        failed: Every sample that did not pass: its "status", "error" and "sample".
    """

    entry: str
    dtype: str
    way: Way
    status: str
    counts: Mapping[str, int]
    error: str = ""
    sample: str = ""
    rungs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    failed: tuple[Mapping[str, str], ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes another result one of the same thing."""
        return (self.entry, self.dtype, *dataclasses.astuple(self.way))


def read_results(path: Path) -> list[Result]:
    """The results in a file of JSON lines. A last line that was cut off, by a machine that stopped, is left out.

    Raises:
        InputError: The file is missing, or holds something else.
    """
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}.", fix="name a file that `opbridge conformance -o` wrote.")
    lines = path.read_text(encoding="utf-8").splitlines()
    results = []
    for number, line in enumerate(lines, 1):
        try:
            results.append(Result.from_dict(json.loads(line)))
        except (ValueError, InputError) as error:
            if number == len(lines) and isinstance(error, json.JSONDecodeError):
                break
            raise InputError(
                f"Line {number} of {str(path)!r} is not a result of a conformance run.",
                fix="name a file that `opbridge conformance -o` wrote.",
                details=str(error),
            ) from error
    return results


def latest(results: Iterable[Result]) -> list[Result]:
    """The last result of each thing: a later line of a file replaces an earlier one."""
    return list({result.key: result for result in results}.values())
