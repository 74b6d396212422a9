"""Many samples through one export, and a verdict for each: exporting is what takes the time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from opbridge.proof.conformance.calls import Call
from opbridge.proof.conformance.check import Checked

__all__ = ["Sample", "in_batches", "verdicts"]

_MOST_TOGETHER = 32

Sample = tuple[int, Call]
"""A call with its number."""


def in_batches(samples: Sequence[Sample], alone: Collection[int] = ()) -> Iterator[Sequence[Sample]]:
    """The samples in batches, those of these numbers by themselves."""
    together = [sample for sample in samples if sample[0] not in alone]
    yield from ([sample] for sample in samples if sample[0] in alone)
    yield from (together[start : start + _MOST_TOGETHER] for start in range(0, len(together), _MOST_TOGETHER))


def verdicts(
    check: Callable[[Sequence[Sample]], Checked], batches: Iterable[Sequence[Sample]]
) -> Iterator[tuple[Sequence[Sample], Checked]]:
    """What comes of the samples: those that pass together, and each that does not by itself.

    What fails before there are results is tried again by halves. Wrong results are blamed on their samples, which are
    then judged alone.

    Args:
        check: Takes samples through one export.
        batches: Samples that are tried together first.
    """
    for batch in batches:
        checked = check(batch)
        if checked.status == "pass" or len(batch) == 1:
            yield batch, checked
        elif checked.wrong:
            right = [sample for position, sample in enumerate(batch) if position not in checked.wrong]
            if right:
                yield right, dataclasses.replace(checked, status="pass", error="", wrong=())
            yield from verdicts(check, ([batch[position]] for position in checked.wrong))
        else:
            middle = len(batch) // 2
            yield from verdicts(check, (batch[:middle], batch[middle:]))
