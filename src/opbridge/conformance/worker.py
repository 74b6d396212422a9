"""The program that checks entries: ``python -m opbridge.conformance.worker WAY``.

It reads one line of JSON per entry from stdin, and writes one for each stage that begins, for each sample that is done
and for the end of the entry. What torch and the engine print goes to stderr. :mod:`opbridge.conformance.run` is the
other side.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["main"]

_BATCH = 16
"""Samples that are exported as one model at first; if it does not pass, each by itself."""

_MOST_FAILURES = 12
"""After so many samples of one entry have failed, the others are not run."""


def main() -> int:
    """Check entries until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    for line in sys.stdin:
        try:
            _check_entry(json.loads(line), say)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            say({"raised": text, "details": "".join(traceback.format_exception(error))})
    answers.close()
    return 0


def _check_entry(request: Mapping[str, Any], say: Callable[[Mapping[str, Any]], None]) -> None:
    """Check the samples of one entry that are not done yet."""
    import torch

    from opbridge.conformance.check import Checker
    from opbridge.conformance.results import Way

    torch.set_num_threads(1)
    way = Way(**request["way"])
    entry, done = request["entry"], set(request["done"])
    indices: list[int] = []
    checker = Checker(way, lambda stage: say({"stage": stage, "samples": indices}))
    samples = [(number, call) for number, call in _samples(entry, request["dtype"], way) if number not in done]
    say({"samples": len(samples)})
    failures = request["failures"]
    for group in _groups(samples, request["single"]):
        if failures >= _MOST_FAILURES:
            say({"done": [number for number, _ in group], "status": "not run"})
            continue
        indices = [number for number, _ in group]
        checked = checker.check(entry, [call for _, call in group])
        if checked.status != "pass" and len(group) > 1:
            for number, call in group:
                indices = [number]
                alone = checker.check(entry, [call])
                failures += alone.status != "pass"
                say({"done": indices, "sample": str(call), **_data(alone)})
                if failures >= _MOST_FAILURES:
                    say({"done": [n for n, _ in group if n > number], "status": "not run"})
                    break
            continue
        failures += checked.status != "pass"
        say({"done": indices, "sample": str(group[0][1]), **_data(checked)})
    say({"end": True})


def _data(checked: Any) -> dict[str, Any]:
    return {
        "status": checked.status,
        "error": checked.error,
        "rungs": dict(checked.rungs),
        "seconds": dict(checked.seconds),
    }


def _samples(entry: str, dtype: str, way: Any) -> Iterator[tuple[int, Any]]:
    """The samples that are models: those that eager PyTorch takes as dense tensors of their own memory."""
    from opbridge.conformance.database import calls_of
    from opbridge.conformance.sizes import moves_of
    from opbridge.silence import silenced

    wanted = way.samples or None
    with silenced():
        usable = (call for call in calls_of(entry, dtype) if call.runs() and (not way.dynamic or moves_of(call)))
        yield from enumerate(itertools.islice(usable, wanted))


def _groups(samples: Sequence[Any], single: bool) -> list[Sequence[Any]]:
    size = 1 if single else _BATCH
    return [samples[start : start + size] for start in range(0, len(samples), size)]


if __name__ == "__main__":
    sys.exit(main())
