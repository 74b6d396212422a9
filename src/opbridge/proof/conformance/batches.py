"""Exports many samples as one model, because exporting takes most of the time, and gives each sample its verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from opbridge.proof.conformance.calls import Call
from opbridge.proof.conformance.check import Checked

__all__ = ["Sample", "in_batches", "verdicts"]

_MOST_TOGETHER = 32

Sample = tuple[int, Call]
"""The number of a sample and its call."""


def in_batches(samples: Sequence[Sample], alone: Collection[int] = ()) -> Iterator[Sequence[Sample]]:
    """Split the samples into batches; each sample whose number is in ``alone`` is a batch of its own."""
    together = [sample for sample in samples if sample[0] not in alone]
    yield from ([sample] for sample in samples if sample[0] in alone)
    yield from (together[start : start + _MOST_TOGETHER] for start in range(0, len(together), _MOST_TOGETHER))


def verdicts(
    check: Callable[[Sequence[Sample]], Checked], batches: Iterable[Sequence[Sample]]
) -> Iterator[tuple[Sequence[Sample], Checked]]:
    """Check batches of samples; yield the samples that pass together, and each failing sample separately.

    A batch that fails before it has results is split in half and tried again. Samples with wrong results are checked
    again on their own.

    Args:
        check: Exports samples as one model and verifies it.
        batches: The samples to try together first.
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
