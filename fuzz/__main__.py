"""Tries what can go wrong: changed files in every reader, faults in every command, kills and faults of the disk.

    python fuzz --seconds 60
    python fuzz --seconds 3600 --area kills --area disk

It prints how much was tried in each area and how much of it passed, and every failure with what repeats it. The exit
code is 1 if there was one. `--seconds` is the time for all areas together, divided evenly.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from commands import all_cases
from forked import run_all
from readers import AREAS, fuzz
from replacing import replace_all
from valid_files import make_valid

import opbridge.bundle.captured
import opbridge.cli
import opbridge.findings
import opbridge.verbs.references
import opbridge.verbs.sources

COMMANDS = ("files", "values", "outputs", "surroundings", "signals", "two faults")
REPLACING = ("kills", "disk", "disk, then kills")
GROUPS = {"readers": tuple(AREAS), "commands": COMMANDS, "replacing a bundle": REPLACING}
SHARES = {"commands": 0.55, "replacing a bundle": 0.3, "readers": 0.15}


def main() -> int:
    """Run the areas, print the table, and return 1 if there was a failure."""
    parser = argparse.ArgumentParser(prog="python fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="the time for all areas together (default: 60)")
    parser.add_argument(
        "--area", choices=[*GROUPS, *chain(*GROUPS.values())], action="append", help="an area (repeatable)"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the seed (default: from the clock)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    arguments = parser.parse_args()
    wanted = {area for name in arguments.area or GROUPS for area in GROUPS.get(name, (name,))}
    shares = {group: share for group, share in SHARES.items() if wanted & set(GROUPS[group])}
    tried: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    # Not a TemporaryDirectory, which a forked process would delete at its end.
    scratch = Path(tempfile.mkdtemp(prefix="opbridge-fuzz-"))
    try:
        _prepare(scratch)
        for group, share in shares.items():
            seconds = arguments.seconds * share / sum(shares.values())
            for area, failures in _run(group, wanted, seconds, scratch, arguments.seed, arguments.jobs):
                tried[area] += 1
                failed[area] += bool(failures)
                for failure in failures:
                    print(f"{area}: {failure}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{'area':<20} {'tried':>8} {'passed':>8} {'failed':>8}   (seed {arguments.seed})")
    for area in (*tried, *sorted(wanted - set(tried))):
        print(f"{area:<20} {tried[area]:>8} {tried[area] - failed[area]:>8} {failed[area]:>8}")
    print(f"{'all':<20} {tried.total():>8} {tried.total() - failed.total():>8} {failed.total():>8}")
    return 1 if failed.total() else 0


def _prepare(scratch: Path) -> None:
    """Make the valid files, and load what forked processes would load again."""
    os.environ.update(XDG_DATA_HOME=str(scratch / "data"), OMP_NUM_THREADS="1")
    opbridge.cli.build_parser()
    opbridge.findings.modules()
    make_valid(scratch / "valid")


def _run(
    group: str, wanted: set[str], seconds: float, scratch: Path, seed: int, jobs: int
) -> Iterator[tuple[str, list[str]]]:
    """The area and the failures of each try."""
    chance, ends = random.Random(seed), time.monotonic() + seconds
    valid, place = scratch / "valid", scratch / group
    place.mkdir()
    if group == "readers":
        areas = [area for area in AREAS if area in wanted]
        for area in areas:
            tally = fuzz(area, seconds=seconds / len(areas), first_seed=seed)
            yield from ((area, []) for _ in range(tally.tried - len(tally.failures)))
            yield from ((area, [failure]) for failure in tally.failures)
    elif group == "commands":
        cases = (case for case in all_cases(chance) if case.area in wanted)
        for ended in run_all(cases, valid, place, jobs=jobs, ends=ends):
            what = f"{ended.case}: {'; '.join(ended.faults)}\n{ended.err}"
            yield ended.case.area, [what] if ended.faults else []
    else:
        for replaced in replace_all(valid, place, chance, ends, wanted):
            yield replaced.area, [f"{replaced.what}: {fault}" for fault in replaced.faults]


if __name__ == "__main__":
    sys.exit(main())
