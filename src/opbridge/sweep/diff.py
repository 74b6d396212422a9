"""Compares two sweeps: what an upgrade broke, fixed, slowed down or made less accurate."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from opbridge.atomic import replace_file, reported
from opbridge.records import Record
from opbridge.report.junit import JunitTest, render_suites
from opbridge.sweep.rows import Row, read_rows

__all__ = ["Change", "Difference", "compare_sweeps", "write_junit"]

Kind = Literal["broken", "slower", "less accurate", "other cause", "fixed", "faster", "missing", "new"]

REGRESSIONS: tuple[Kind, ...] = ("broken", "slower", "less accurate")
"""The kinds of changes that fail a comparison."""

_SLOWER = 1.5
"""Two runs of one sweep on one busy machine differ by less than this factor; the sum of many models hides the rest."""
_LONG_ENOUGH = 1e-3
"""Runs that are shorter, in seconds, are not compared: the machine's noise is a large part of them."""
_ACCURATE = 0.5
"""An error below this part of the tolerance is not reported, however it has changed."""


@dataclasses.dataclass(frozen=True)
class Change(Record):
    """What changed for one model.

    Attributes:
        model: "collection/model, exporter on engine".
        kind: What changed.
        before: The earlier result, or number, in words.
        after: The later one.
    """

    model: str
    kind: Kind
    before: str
    after: str


@dataclasses.dataclass(frozen=True)
class Difference(Record):
    """The comparison of two sweeps.

    Attributes:
        old: The folder of the earlier results.
        new: The folder of the later results.
        versions: The packages whose versions differ: "torch 2.13.0 -> 2.14.1".
        changes: What changed, regressions first.
        compared: The models that both have, as in :attr:`Change.model`.
    """

    old: str
    new: str
    versions: tuple[str, ...]
    changes: tuple[Change, ...]
    compared: tuple[str, ...]

    json_keys = ("old", "new", "versions", "regressions", "changes", "compared")

    @property
    def regressions(self) -> tuple[Change, ...]:
        """The changes for the worse."""
        return tuple(change for change in self.changes if change.kind in REGRESSIONS)


def compare_sweeps(old: str | Path, new: str | Path) -> Difference:
    """Compare the results of two folders, model by model.

    Args:
        old: The folder of the earlier results.
        new: The folder of the later results.

    Raises:
        InputError: A folder has no results.
    """
    before, after = ({row.key: row for row in read_rows(folder)} for folder in (old, new))
    changes = [change for key in before if key in after for change in _changes(before[key], after[key])]
    changes += [Change(_name(row), "missing", row.status, "no row") for key, row in before.items() if key not in after]
    changes += [Change(_name(row), "new", "no row", row.status) for key, row in after.items() if key not in before]
    order: list[Kind] = [*REGRESSIONS, "other cause", "fixed", "faster", "missing", "new"]
    changes.sort(key=lambda change: (order.index(change.kind), change.model))
    versions = _versions(list(before.values()), list(after.values()))
    return Difference(
        str(old), str(new), versions, tuple(changes), tuple(_name(row) for key, row in before.items() if key in after)
    )


def _name(row: Row) -> str:
    return f"{row.zoo}/{row.model}, {row.exporter} on {row.engine}"


def _changes(before: Row, after: Row) -> Iterator[Change]:
    name = _name(before)
    if before.passed != after.passed:
        kind: Kind = "fixed" if after.passed else "broken"
        yield Change(name, kind, _result(before), _result(after))
        return
    if not before.passed:
        if (before.status, before.causes) != (after.status, after.causes):
            yield Change(name, "other cause", _result(before), _result(after))
        return
    times = before.run_seconds, after.run_seconds
    if times[0] and times[1] and max(times[0], times[1]) >= _LONG_ENOUGH:
        shown = f"{times[0] * 1e3:.3g} ms a run", f"{times[1] * 1e3:.3g} ms a run"
        if times[1] > _SLOWER * times[0]:
            yield Change(name, "slower", *shown)
        elif times[0] > _SLOWER * times[1]:
            yield Change(name, "faster", *shown)
    errors = before.tolerance_used, after.tolerance_used
    if errors[0] is not None and errors[1] is not None and errors[1] > max(_ACCURATE, 2 * errors[0]):
        yield Change(name, "less accurate", *(f"{error:.0%} of the tolerance" for error in (errors[0], errors[1])))


def _result(row: Row) -> str:
    return row.status if row.passed else f"{row.status}: {row.causes[0] if row.causes else row.error}"


def _versions(before: Sequence[Row], after: Sequence[Row]) -> tuple[str, ...]:
    def of(rows: Sequence[Row]) -> dict[str, str]:
        return {package: version for row in rows for package, version in row.versions.items()}

    old, new = of(before), of(after)
    return tuple(f"{name} {old[name]} -> {new[name]}" for name in old if name in new and old[name] != new[name])


def write_junit(found: Difference, path: str | Path) -> None:
    """Write a comparison as JUnit XML: a test per model, which fails if the model got worse.

    Raises:
        InputError: The file can't be written.
    """
    worse = {change.model: change for change in found.regressions}
    tests = [_test(name, worse.get(name)) for name in found.compared]
    tests += [
        JunitTest(change.model, "skipped", f"{change.before}; {change.after}")
        for change in found.changes
        if change.kind in ("missing", "new")
    ]
    text = render_suites("opbridge sweep diff", {"sweep": tests})
    with reported(path, is_new=False):
        replace_file(Path(path), text.encode())


def _test(name: str, change: Change | None) -> JunitTest:
    if change is None:
        return JunitTest(name)
    return JunitTest(name, "failure", f"{change.kind}: {change.before} -> {change.after}")
