"""The program that checks entries: ``python -m opbridge.proof.conformance.worker WAY``.

The worker reads one line of JSON per entry from stdin. It writes one line at the start of each stage, after each sample
and at the end of the entry. The output of torch and the engine goes to stderr.
:mod:`opbridge.proof.conformance.pool` starts the workers.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opbridge.engines.process.lifeline import end_with_parent
from opbridge.proof.conformance.batches import Sample, in_batches, verdicts
from opbridge.proof.conformance.check import Checked, Checker
from opbridge.proof.conformance.database import calls_of
from opbridge.proof.conformance.results import Way
from opbridge.proof.conformance.sizes import moves_of
from opbridge.proof.verify.verification import OUTSIDE
from opbridge.torch_graph.silence import silenced

__all__ = ["check_entry", "main"]

_MOST_FAILURES = 12
"""The number of failed samples of an entry after which its other samples are not run."""


def main() -> int:
    """Check entries until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    end_with_parent()

    def send(message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    for line in sys.stdin:
        try:
            check_entry(json.loads(line), send)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            send({"raised": text, "details": "".join(traceback.format_exception(error))})
    answers.close()
    return 0


def check_entry(request: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> None:
    """Check the remaining samples of one entry; ``send`` receives the messages."""
    import torch

    torch.set_num_threads(1)
    way = Way.from_dict(request["way"])
    entry, done = request["entry"], set(request["done"])
    indices: list[int] = []
    checker = Checker(way, lambda stage: send({"stage": stage, "samples": indices}))

    def check(group: Sequence[Sample]) -> Checked:
        indices[:] = [number for number, _ in group]
        return checker.check(entry, [call for _, call in group])

    samples = [(number, call) for number, call in _samples(entry, request["dtype"], way) if number not in done]
    send({"samples": len(samples)})
    failures = request["failures"]
    left = {number for number, _ in samples}
    groups = in_batches(samples, set(request["alone"])) if failures < _MOST_FAILURES else []
    for group, checked in verdicts(check, groups):
        send({"done": [number for number, _ in group], "sample": str(group[0][1]), **_data(checked)})
        left -= {number for number, _ in group}
        failures += checked.status not in ("pass", OUTSIDE)
        if failures >= _MOST_FAILURES:
            break
    if left:
        send({"done": sorted(left), "status": "not run"})
    send({"end": True})


def _data(checked: Any) -> dict[str, Any]:
    return {
        "status": checked.status,
        "error": checked.error,
        "rungs": dict(checked.rungs),
        "seconds": dict(checked.seconds),
    }


def _samples(entry: str, dtype: str, way: Any) -> Iterator[tuple[int, Any]]:
    """The samples that can be models: eager PyTorch accepts them with dense tensors that do not share memory."""
    limit = way.samples or None
    with silenced():
        runs = (call for call in calls_of(entry, dtype) if call.runs())
        usable = (call for call in runs if not way.dynamic or moves_of(entry, call))
        yield from enumerate(itertools.islice(usable, limit))


if __name__ == "__main__":
    sys.exit(main())
