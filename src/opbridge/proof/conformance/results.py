"""The results as data: one line of JSON per entry, element type, exporter and engine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opbridge.bundle.checks import parsed
from opbridge.catalog.declare.kernel_choice import AUTO, Kernels
from opbridge.catalog.declare.nan import EXACT, Nan
from opbridge.errors import InputError
from opbridge.records import StoredRecord
from opbridge.user_key import read_regular

__all__ = ["STATUSES", "Result", "Way", "latest", "read_results"]

STATUSES = ("pass", "capture", "translate", "load", "run", "mismatch", "outside the contract", "not applicable")
"""The statuses of an entry: "pass", or the first stage at which a sample failed.

An entry is "outside the contract" if every sample leads to NaN, and models are exported for runs without NaN.
"""


@dataclasses.dataclass(frozen=True)
class Way(StoredRecord):
    """An exporter and an engine with their options.

    Attributes:
        exporter: "opbridge", or "torch" for the plain ``torch.onnx.export``.
        engine: The engine's name.
        dynamic: Whether dimensions are dynamic and verified at a second size.
        samples: The maximum number of samples per entry; 0 for all.
        nan: What opbridge's models do with NaN; if they assume that there is none, samples with NaN are not judged.
        kernels: Which of opbridge's own kernels its models use.
    """

    exporter: str = "opbridge"
    engine: str = "onnxruntime"
    dynamic: bool = False
    samples: int = 0
    nan: Nan = EXACT
    kernels: Kernels = AUTO


@dataclasses.dataclass(frozen=True)
class Result(StoredRecord):
    """The result of an entry in one element type.

    Attributes:
        entry: The entry's name in PyTorch's operator database.
        dtype: The element type.
        way: The exporter and the engine.
        status: One of :data:`STATUSES`: the earliest stage at which a sample failed, or "pass".
        counts: The number of samples by status; "not run" for samples after the limit on failures.
        error: The error of a sample with that status, in one line.
        sample: The sample, as a call: "(f32[2, 3], 1, keepdim=True)".
        rungs: The rung of each torch operator without a mapping in torch.onnx, over all samples.
        seconds: The time by stage.
        versions: The versions of torch and the engine.
        failed: The "status", "error" and "sample" of every sample that did not pass.
        date: The day of the run in UTC: "2026-11-23"; empty in the files of earlier versions.
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
    date: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of the entry, element type and way; a later result with the same key replaces this one."""
        return (self.entry, self.dtype, *dataclasses.astuple(self.way))


def read_results(path: Path) -> list[Result]:
    """The results in a file of JSON lines. An incomplete last line is ignored.

    Raises:
        InputError: The file is missing, or has other content.
    """
    fix = "name a file that `opbridge conformance -o` wrote."
    try:
        lines = read_regular(path).splitlines()
    except FileNotFoundError as error:
        raise InputError(f"There is no file {str(path)!r}.", fix=fix) from error
    except OSError as error:
        raise InputError(f"{str(path)!r} can't be read: {error.strerror or error}.", fix=fix) from error
    results = []
    for number, line in enumerate(lines, 1):
        try:
            results.append(Result.from_dict(parsed(line)))
        except (ValueError, InputError) as error:
            if number == len(lines) and isinstance(error, json.JSONDecodeError):
                break
            raise InputError(
                f"Line {number} of {str(path)!r} is not a result of a conformance run.",
                fix=fix,
                details=str(error),
            ) from error
    return results


def latest(results: Iterable[Result]) -> list[Result]:
    """The last result for each key: a later line of a file replaces an earlier one."""
    return list({result.key: result for result in results}.values())
