"""A bundle is replaced, and at a step the process is killed or the disk fails: the old bundle stays, or a new one.

A step is one event of Python that touches the output's folder or the temporary files: opening, renaming or deleting a
file, making a folder, listing one. The audit hook that sees them is the injected layer.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from forked import LIMIT, command_line, enter, run_forked

__all__ = ["Replaced", "replace_all"]

_EVENTS = {
    "open",
    "os.rename",
    "os.mkdir",
    "os.remove",
    "os.rmdir",
    "os.link",
    "os.scandir",
    "os.listdir",
    "os.truncate",
}
_ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EMFILE, errno.EDQUOT)
_EXPORT = ("export", "m.onnx", "-o", "b", "--engine", "reference", "--overwrite", "--no-verify", "-q")
_REPORT = ("report", "b", "-q")
_COMMANDS = {"export": _EXPORT, "report": _REPORT}


@dataclasses.dataclass(frozen=True)
class Replaced:
    """What happened in one trial: its area, what was done, and what is wrong with the result, if anything."""

    area: str
    what: str
    faults: tuple[str, ...]


Acts = Mapping[int, Callable[[str], None]]
"""What happens, by the number of the step."""


def _at_steps(folders: tuple[str, ...], acts: Acts) -> list[int]:
    """Let something happen at steps. Returns a list whose only item counts the steps."""
    count = [0]

    def see(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS and arguments and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            if path.startswith(folders):
                count[0] += 1
                if count[0] in acts:
                    acts[count[0]](f"{event} {path}")

    sys.addaudithook(see)
    return count


def _kill(step: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(code: int) -> Callable[[str], None]:
    def fail(step: str) -> None:
        raise OSError(code, os.strerror(code), step.partition(" ")[2])

    return fail


class _Trials:
    """Trials in a scratch folder, each on a copy of the valid files."""

    def __init__(self, valid: Path, scratch: Path) -> None:
        self._valid = valid
        self._scratch = scratch
        self._number = 0

    def _place(self) -> Path:
        self._number += 1
        place = self._scratch / str(self._number)
        shutil.copytree(self._valid, place / "work", symlinks=True)
        (place / "temporary").mkdir()
        return place

    def steps(self, command: str) -> int:
        """How many steps the command has."""
        place = self._place()
        file = place / "steps"

        def count() -> None:
            counted = _at_steps((str(place / "work"), str(place / "temporary")), {})
            _run(place, _COMMANDS[command])
            file.write_text(str(counted[0]))

        run_forked(count)
        return int(file.read_text())

    def trial(self, area: str, command: str, acts: Acts, what: str, after: float = LIMIT) -> Replaced:
        """Run the command, and let something happen at steps, or kill it after a time."""
        place = self._place()

        def run() -> int:
            _at_steps((str(place / "work"), str(place / "temporary")), acts)
            return _run(place, _COMMANDS[command])

        code = run_forked(run, limit=after)
        faults = [*self._faults(place, code, is_killed="kills" in area and code == -signal.SIGKILL)]
        shutil.rmtree(place, ignore_errors=True)
        return Replaced(area, f"{command}: {what}", tuple(faults))

    def _faults(self, place: Path, code: int, *, is_killed: bool) -> Iterator[str]:
        if not is_killed:
            err = (place / "err").read_text(errors="replace")
            if code not in (0, 1):
                yield f"the exit code is {code}"
            if code == 1 and "fix:" not in err:
                yield "the error has no fix"
            if "bug in opbridge" in err or "Traceback" in err:
                yield f"not an error of the disk: {err[-300:]}"
        first = run_forked(lambda: _check_bundle(place))
        if first != 0:
            yield "the bundle is neither the old one nor a new one"
        # The next run succeeds, and cleans up.
        code = run_forked(lambda: _run(place, _EXPORT))
        if code != 0:
            yield f"the next run fails: {(place / 'err').read_text(errors='replace')[-300:]}"
        left = [name for name in os.listdir(place / "work") if name.startswith(".")]
        left += [name for name in os.listdir(place / "temporary") if "opbridge" in name and "-logs-" not in name]
        if left:
            yield f"left behind: {', '.join(left)}"


def _run(place: Path, argv: tuple[str, ...]) -> int:
    enter(place)
    return command_line(argv)


def _check_bundle(place: Path) -> None:
    from opbridge.bundle.bundle import read_bundle

    os.chdir(place / "work")
    bundle = read_bundle("b")
    assert str(bundle.trust) == "own"
    assert bundle.inputs


def replace_all(
    valid: Path, scratch: Path, chance: random.Random, ends: float, wanted: Collection[str]
) -> Iterator[Replaced]:
    """Kill, and let the disk fail, at every step and at random moments, until ``time.monotonic()`` is ``ends``.

    Args:
        valid: The folder of valid files.
        scratch: An empty folder.
        chance: Chooses the order of the steps, the moments and the errors.
        ends: When no more is tried.
        wanted: The areas: "kills", "disk", "disk, then kills".
    """
    trials = _Trials(valid, scratch)
    steps = [(command, number) for command in _COMMANDS for number in range(1, trials.steps(command) + 1)]
    while True:
        for command, number in chance.sample(steps, len(steps)):
            code = chance.choice(_ERRORS)
            fails = f"{errno.errorcode[code]} at step {number}"
            if "kills" in wanted:
                yield trials.trial("kills", command, {number: _kill}, f"killed at step {number}")
                seconds = chance.uniform(0, 1.5)
                yield trials.trial("kills", command, {}, f"killed after {seconds:.3f} s", after=seconds)
            if "disk" in wanted:
                yield trials.trial("disk", command, {number: _fail(code)}, fails)
            if "disk, then kills" in wanted:
                later = number + chance.randint(1, 8)
                acts = {number: _fail(code), later: _kill}
                yield trials.trial("disk, then kills", command, acts, f"{fails}, killed at step {later}")
            if time.monotonic() >= ends:
                return
