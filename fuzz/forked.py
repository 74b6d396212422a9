"""Runs command lines of opbridge in forked processes, under surroundings that are not as they should be."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import re
import shutil
import signal
import socket
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from surroundings import FRESH, SURROUNDINGS, become_ordinary

__all__ = ["FRESH", "SURROUNDINGS", "Case", "Ended", "command_line", "enter", "make_socket", "run_all", "run_forked"]

LIMIT = 90.0
"""The seconds that a command line may take on these small files, without those in which it waits for a processor."""

_CONTROLS = re.compile("[\x07\x1b\u200b\u202e]")
"""Of the characters that a name may not bring to the terminal those that the bad files have."""

GRACE = 20.0
"""The seconds in which the processes that a command line started must have ended after it."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One command line in a folder of its own.

    Attributes:
        area: The line of the table that it counts for.
        argv: The arguments of ``opbridge``.
        prepare: A function that changes the folder, which holds a copy of the valid files.
        surroundings: A key of ``SURROUNDINGS``.
        outputs: The names of what it may write.
        name: What is wrong, where the arguments do not show it.
        culprit: A text that an error must contain; empty if the case has more than one fault.
        interrupt: A signal and after how many seconds it is sent; None for none.
    """

    area: str
    argv: tuple[str, ...]
    prepare: Callable[[Path], object] = lambda folder: None
    surroundings: str = "ordinary"
    outputs: tuple[str, ...] = ()
    culprit: str = ""
    name: str = ""
    interrupt: tuple[int, float] | None = None

    def __str__(self) -> str:
        sent = "" if self.interrupt is None else f", {self.interrupt[0]} after {self.interrupt[1]:.3f} s"
        return f"opbridge {' '.join(self.argv)}   ({self.name or self.surroundings}{sent})"


@dataclasses.dataclass(frozen=True)
class Ended:
    """What a case did: its exit code (negative for a signal), its output, and what is wrong with that, if anything."""

    case: Case
    code: int
    out: str
    err: str
    seconds: float
    faults: tuple[str, ...]


PROGRAM = "import sys; from opbridge.__main__ import main; sys.exit(main())"
"""What the installed command ``opbridge`` does."""

_UNHEARD = {"stderr is full", f"{FRESH}no stderr", f"{FRESH}no stdin, stdout and stderr"}
_FEW_FILES = {"16 open files", f"{FRESH}10 open files"}
_UNWRITTEN = {"the folder was deleted", "no file may be written", f"{FRESH}no file may be written"}


# Running.


def run_all(cases: Iterable[Case], valid: Path, scratch: Path, *, jobs: int, ends: float) -> Iterator[Ended]:
    """Run cases, several at once, until ``time.monotonic()`` is ``ends``.

    Args:
        cases: The cases.
        valid: The folder of valid files, which each case gets a copy of.
        scratch: An empty folder.
        jobs: How many run at once.
        ends: When no more is started.
    """
    running: dict[int, _Running] = {}
    waiting = iter(cases)
    number = 0
    while True:
        while len(running) < jobs and time.monotonic() < ends and (case := next(waiting, None)) is not None:
            number += 1
            started = _Running(case, valid, scratch / str(number))
            running[started.process] = started
        if not running:
            return
        for process in list(running):
            ended = running[process].poll()
            if ended is not None:
                del running[process]
                yield ended
        time.sleep(0.002)


class _Running:
    """A case that runs in the folder ``place``."""

    def __init__(self, case: Case, valid: Path, place: Path) -> None:
        self.case = case
        self.place = place
        self.folder = place / "work"
        place.mkdir()
        shutil.copytree(valid, self.folder, symlinks=True)
        (place / "temporary").mkdir()
        case.prepare(self.folder)
        self.before = _listing(self.folder)
        self.started = time.monotonic()
        self.is_sent = False
        # Pipes, because a limit on the size of files would concern files.
        self.pipes = os.pipe(), os.pipe()
        self.printed = [b"", b""]
        sys.stdout.flush()
        sys.stderr.flush()
        # An interrupt that comes before the command runs must not show the harness.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self.process = os.fork()
        if self.process == 0:
            self._run()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self.delay = _Delay(self.process)
        for reader, writer in self.pipes:
            os.close(writer)
            os.set_blocking(reader, False)

    def _run(self) -> None:
        """Become the command line. Never returns."""
        code = 99
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            os.setsid()
            os.chdir(self.folder)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # The harness may run under nohup.
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(self.pipes[0][1], 1)
            os.dup2(self.pipes[1][1], 2)
            os.closerange(3, 256)
            os.environ.update(TMPDIR=str(self.place / "temporary"), XDG_CACHE_HOME=str(self.place / "cache"))
            become_ordinary()
            SURROUNDINGS[self.case.surroundings](self.folder)
            if self.case.surroundings.startswith(FRESH):
                os.execv(sys.executable, [sys.executable, "-c", PROGRAM, *self.case.argv])
            code = command_line(self.case.argv)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            with contextlib.suppress(OSError):
                os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)

    def poll(self) -> Ended | None:
        """What it did, if it has ended."""
        self._read()
        self.delay.look()
        ended, status = os.waitpid(self.process, os.WNOHANG)
        seconds = time.monotonic() - self.started
        if not ended:
            if self.case.interrupt is not None and not self.is_sent and seconds > self.case.interrupt[1]:
                self.is_sent = True
                os.kill(self.process, self.case.interrupt[0])
            if seconds < LIMIT or seconds - self.delay.seconds() < LIMIT:
                return None
            os.kill(self.process, signal.SIGKILL)
            _, status = os.waitpid(self.process, 0)
        code = os.waitstatus_to_exitcode(status)
        seconds -= self.delay.seconds()
        self._read()
        out, err = (printed.decode(errors="replace") for printed in self.printed)
        faults = [*self._faults_of(code, out, err, seconds), *self._left()]
        for reader, _ in self.pipes:
            os.close(reader)
        _delete(self.place)
        return Ended(self.case, code, out, err, seconds, tuple(faults))

    def _read(self) -> None:
        """Read what was printed so far."""
        for number, (reader, _) in enumerate(self.pipes):
            with contextlib.suppress(BlockingIOError):
                while piece := os.read(reader, 1 << 16):
                    self.printed[number] += piece

    def _faults_of(self, code: int, out: str, err: str, seconds: float) -> Iterator[str]:
        """What is wrong with the exit code and the output."""
        case = self.case
        allowed = {0, 1, 2} | ({141} if case.surroundings == "nobody reads stdout" else set())
        if case.interrupt is not None:
            allowed.add(128 + case.interrupt[0])
        # Python may end before it has read a line of opbridge; its installation may have a finder of that name.
        if case.interrupt is not None and code == -case.interrupt[0] and "/opbridge/" not in err:
            return
        if seconds >= LIMIT:
            yield f"it did not end within {LIMIT:.0f} seconds"
        elif code not in allowed:
            yield f"the exit code is {code}"
        if _CONTROLS.search(out + err):
            yield "a name controls the terminal"
        if re.search("^fix: run this", err, re.MULTILINE):
            yield "a name gives a fix"
        # A script of the user's that fails prints its own.
        if case.argv[:1] == ("run-script",) and 'File "script.py"' in err:
            err = err.replace("Traceback", "", 1)
        for text in ("Traceback", "bug in opbridge", "Fatal Python error", "Exception ignored", "Segmentation fault"):
            if text in err or (text == "Traceback" and text in out):
                yield f"the output has {text!r}"
        if case.surroundings in _UNHEARD or code not in (1, 2):
            return
        if not out and "error:" not in err and "fix:" not in err:
            yield "it failed and said nothing"
        if code == 1 and "error:" in err and "fix:" not in err:
            yield "the error has no fix"
        if case.culprit and "error:" in err and case.culprit not in err:
            yield f"the error does not name {case.culprit!r}"

    def _left(self) -> Iterator[str]:
        """What was changed or left that should not have been."""
        if self.case.surroundings in _UNWRITTEN:
            return
        after = _listing(self.folder)
        for name in sorted(set(self.before) | set(after)):
            if self.case.surroundings in _FEW_FILES and name.startswith(_siblings(self.case.outputs)):
                continue
            if name.split("/")[0] not in self.case.outputs and self.before.get(name) != after.get(name):
                what = "is new" if name not in self.before else "is gone" if name not in after else "was changed"
                yield f"{name} {what}"
        left = [
            name
            for name in os.listdir(self.place / "temporary")
            if name.startswith(("opbridge-", ".opbridge", "tmp")) and "-logs-" not in name
        ]
        # Without a free descriptor a folder can't be deleted; the next run does it.
        if left and self.case.surroundings not in _FEW_FILES:
            yield f"temporary files are left: {', '.join(left)}"
        if not _has_ended(self.process):
            yield "processes are left"


class _Delay:
    """How long the processes of a session have waited for a processor, because the machine does other things too."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._waited: dict[str, float] = {}
        self._looked = time.monotonic()

    def look(self) -> None:
        """Read the waiting times, at most once in two seconds."""
        if time.monotonic() - self._looked < 2.0:
            return
        self._looked = time.monotonic()
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, IndexError):
                if int(status.read_text().rpartition(")")[2].split()[3]) == self._session:
                    for thread in status.parent.glob("task/*/schedstat"):
                        self._waited[thread.parent.name] = int(thread.read_text().split()[1]) / 1e9

    def seconds(self) -> float:
        """The waiting times of all threads together, which is more than enough if several waited at once."""
        return sum(self._waited.values())


def run_forked(function: Callable[[], object], *, limit: float = LIMIT) -> int:
    """Call a function in a forked process and return the exit code, which is what it returns if that is a number.

    The process and those that it started are killed when the time is over.
    """
    process = os.fork()
    if process == 0:
        code = 99
        try:
            os.setsid()
            result = function()
            code = result if isinstance(result, int) else 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    started, delay = time.monotonic(), _Delay(process)
    while (seconds := time.monotonic() - started) < limit or (limit >= LIMIT and seconds - delay.seconds() < limit):
        delay.look()
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            break
        time.sleep(0.002)
    else:
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
    _has_ended(process)
    return os.waitstatus_to_exitcode(status)


def enter(place: Path) -> None:
    """Make ``place/work`` the current folder of this process, with its temporary files and output beside it."""
    os.chdir(place / "work")
    os.environ.update(TMPDIR=str(place / "temporary"), XDG_CACHE_HOME=str(place / "cache"))
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), descriptor)


def command_line(argv: tuple[str, ...]) -> int:
    """The command line in this process, with streams for what are now its standard files."""
    from opbridge.__main__ import main

    sys.argv = ["opbridge", *argv]
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(descriptor, mode, buffering, encoding="utf-8", closefd=False, errors="backslashreplace")
        for descriptor, mode, buffering in ((0, "r", -1), (1, "w", -1), (2, "w", 1))
    )
    sys.__stdout__, sys.__stderr__, sys.__stdin__ = sys.stdout, sys.stderr, sys.stdin  # type: ignore[misc]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = main()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    return code


def _has_ended(group: int) -> bool:
    """Whether all processes of a group end by themselves; those that do not are ended."""
    for _ in range(int(GRACE / 0.05)):
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return True
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    return False


def _siblings(outputs: tuple[str, ...]) -> tuple[str, ...]:
    """How the temporary files beside the outputs begin, which the next run deletes if this one could not."""
    return tuple(f".{name}." for name in outputs)


def _listing(folder: Path) -> Mapping[str, object]:
    """What is in a folder, with what would differ if it were changed."""
    found: dict[str, object] = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(root) / name
            status = path.lstat()
            kind = stat.S_IFMT(status.st_mode)
            content = (status.st_size, status.st_mtime_ns, status.st_ino) if stat.S_ISREG(kind) else ()
            found[path.relative_to(folder).as_posix()] = (kind, *content)
    return found


def _delete(folder: Path) -> None:
    """Delete a folder, and what is in it without a permission to change it."""
    for root, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(root, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def make_socket(path: Path) -> None:
    """A socket that nobody listens to."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(os.path.relpath(path))
