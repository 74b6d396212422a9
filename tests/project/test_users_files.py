"""Nothing of the user's is deleted or changed: leftovers, logs, caches, devices, and what all threads share."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import opbridge
from opbridge import atomic
from opbridge.bundle.bundle import read_bundle
from opbridge.bundle.destination import check_destination
from opbridge.cli import _collect
from opbridge.errors import BuildError, InputError
from opbridge.kernels import cache, compiler, toolchain
from opbridge.kernels.cache import is_made, made_once
from opbridge.torch_graph.silence import silenced

pytestmark = pytest.mark.newest


# Leftovers.


@pytest.mark.parametrize("name", [".b.0123abcd", ".b.0123abcd0123456789abcdef", ".b.0123abcd.old"])
def test_what_only_looks_like_a_leftover_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.tex").write_text("years of work")
    check_destination(tmp_path / "b")
    with pytest.raises(InputError, match="no such folder"):
        read_bundle(tmp_path / "b")
    atomic.replace_file(tmp_path / "b", b"")
    assert (tmp_path / name / "thesis.tex").exists()


def test_what_another_user_left_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another"))
    left = tmp_path / atomic._temporary_name("b", "0123abcd")
    left.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "me"))
    atomic.delete_stale(tmp_path / "b")
    assert left.exists()


HOLD = """
import sys
from opbridge.atomic import TemporaryFolder
folder = TemporaryFolder()
print(folder.name, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks there")
def test_a_temporary_folder_is_deleted_after_its_process_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    users = tmp_path / ".opbridge.0123abcd0123456789abcdef"
    users.mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.stat().st_mode & 0o777 == 0o700
        with atomic.TemporaryFolder() as own:
            assert folder.is_dir()
            assert os.listdir(own) == []
        process.kill()
    with atomic.TemporaryFolder() as own:
        assert set(os.listdir(tmp_path)) == {users.name, Path(own).name}
    assert os.listdir(tmp_path) == [users.name]


# Devices and pipes.


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files there")
def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(InputError, match="is a pipe or a device") as caught:
            atomic.replace_file(tmp_path / name, b"")
        assert "regular file" in caught.value.fix
    with pytest.raises(InputError, match="is a folder that can't be replaced"):
        atomic.replace_file(Path("/"), b"")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


# Logs.


def test_only_logs_of_opbridge_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_collect, "log_folder", lambda: tmp_path)
    mine = [f"run-20260101-0000{number:02}-1_abcd.log" for number in range(40)]
    others = ["thesis.log", *(f"server-{number}.log" for number in range(40))]
    for name in (*mine, *others):
        (tmp_path / name).touch()
    _collect.Collector("run").close(keep=False)
    left = set(os.listdir(tmp_path))
    assert set(others) <= left
    assert len(left) == len(others) + _collect._KEPT_LOGS


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the temporary directory is the user's own there")
def test_a_folder_of_logs_that_somebody_else_prepared_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "precious").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(_collect.tempfile, "tempdir", str(tmp_path))
    usual = tmp_path / f"opbridge-logs-{os.geteuid()}"
    usual.symlink_to(tmp_path / "precious")
    assert _collect.log_folder() not in (usual, tmp_path / "precious")
    usual.unlink()
    assert _collect.log_folder() == usual
    assert usual.stat().st_mode & 0o777 == 0o700


# The cache of compiled files.


def written(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


@pytest.mark.parametrize("damage", [b"", b"evil", b"goo"])
def test_a_file_of_the_cache_that_was_changed_is_made_again(tmp_path: Path, damage: bytes) -> None:
    file = made_once(tmp_path / "cache" / "a.so", written(b"good"))
    assert is_made(file)
    assert made_once(file, lambda _: pytest.fail("made twice")) == file
    file.write_bytes(damage)
    assert made_once(file, written(b"good")).read_bytes() == b"good"
    assert file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes there")
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
@pytest.mark.parametrize("name", ["a.so", "a.so.code"])
def test_what_is_no_file_in_the_cache_is_named(name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / name)
    with pytest.raises(BuildError, match=rf"/{name} in the cache of compiled kernels is not a file") as caught:
        made_once(tmp_path / "a.so", written(b"good"))
    assert "OPBRIDGE_CACHE" in caught.value.fix


def test_a_huge_file_in_the_cache_is_not_read(tmp_path: Path) -> None:
    file = made_once(tmp_path / "a.so", written(b"good"))
    os.truncate(file, 1 << 42)
    started = time.monotonic()
    assert not is_made(file)
    assert time.monotonic() - started < 5


def test_a_file_that_somebody_put_into_the_cache_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(b"evil")
    (tmp_path / "a.so.code").write_bytes(b"0" * 64)
    assert made_once(tmp_path / "a.so", written(b"good")).read_bytes() == b"good"


# Locks of other processes, which may be stopped while they hold one.


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    import fcntl

    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def started(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def ends(thread: threading.Thread, *, seconds: float) -> bool:
    thread.join(seconds)
    return not thread.is_alive()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks there")
def test_the_lock_of_the_cache_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.so", "b.so"):
        (tmp_path / f"{name}.lock").touch()
    with lock(tmp_path / "a.so.lock"):
        waiting = started(lambda: made_once(tmp_path / "a.so", written(b"good")))
        assert not ends(waiting, seconds=0.5)
    assert ends(waiting, seconds=20)
    monkeypatch.setattr(cache, "_MOST_SECONDS", 0.2)
    with lock(tmp_path / "b.so.lock"):
        assert ends(started(lambda: made_once(tmp_path / "b.so", written(b"good"))), seconds=20)
    assert is_made(tmp_path / "a.so")
    assert is_made(tmp_path / "b.so")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks there")
def test_a_temporary_folder_that_another_process_is_deleting_is_left_to_it(tmp_path: Path) -> None:
    made: list[Path] = []
    taken: list[Path] = []

    def make(path: Path) -> None:
        path.mkdir()
        made.append(path)
        if len(made) == 1:
            stack.enter_context(lock(path))

    with contextlib.ExitStack() as stack, contextlib.ExitStack() as own:
        assert ends(started(lambda: taken.append(atomic._new_locked(tmp_path / "b", make, own))), seconds=20)
        assert taken == made[1:]
        with atomic._lock(taken[0]) as is_locked:
            assert not is_locked


COMPILERS = {
    "nothing": ("exit 0", "wrote no object file"),
    "junk": ('for file; do :; done; echo junk > "$file"', "wrote no object file"),
    "hangs": ("exec sleep 60", "did not finish within"),
}


@pytest.mark.parametrize("name", COMPILERS)
def test_a_compiler_that_writes_junk_is_not_cached(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script, message = COMPILERS[name]
    (tmp_path / "cxx").write_text(
        f'#!/bin/sh\ncase "$*" in *-version*|*-dumpmachine*) echo g++; exit;; esac\n{script}\n'
    )
    (tmp_path / "cxx").chmod(0o755)
    (tmp_path / "a.h").write_text("")
    monkeypatch.setenv("CXX", str(tmp_path / "cxx"))
    monkeypatch.setenv("OPBRIDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "_SECONDS", 0.5)
    with pytest.raises(BuildError, match=message) as caught:
        compiler.build([tmp_path / "a.h"])
    assert "CXX" in caught.value.fix
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.suffix in (".o", ".so")]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("g++ 'x", "is not a command"),
        ("no-such-compiler", "does not exist"),
        ("false", "does not print its version"),
    ],
)
def test_a_compiler_that_can_not_be_asked(command: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", command)
    with pytest.raises(BuildError, match=message) as caught:
        toolchain.find_compiler()
    assert "CXX" in caught.value.fix


# What threads share.


def test_only_the_thread_that_asks_is_silenced(capsys: pytest.CaptureFixture[str]) -> None:
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("onnxscript.of_this_test")
    logger.addHandler(handler)
    before = (sys.stderr, list(warnings.filters), list(handler.filters), logger.level)

    def speak(name: str) -> None:
        print(name, file=sys.stderr)
        logger.warning(name)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with silenced() as printed, silenced():
            thread = threading.Thread(target=lambda: (speak("another"), warnings.warn("another", stacklevel=1)))
            thread.start()
            speak("this one")
            warnings.warn("this one", stacklevel=1)
            thread.join()
        speak("after")
    assert [str(item.message) for item in caught] == ["another"]
    assert printed.getvalue() == ""
    assert capsys.readouterr().err == "another\nafter\n"
    assert records == ["another", "after"]
    assert (sys.stderr, list(warnings.filters), list(handler.filters), logger.level) == before
    logger.removeHandler(handler)


@pytest.mark.slow
def test_exports_in_two_threads_leave_the_callers_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (sys.stderr, list(warnings.filters), torch.is_grad_enabled(), torch.get_default_dtype())
    errors: list[BaseException] = []

    def export(number: int) -> None:
        try:
            opbridge.export(torch.nn.ReLU(), (torch.ones(2),), path=tmp_path / f"b{number}", verify=False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=export, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (sys.stderr, list(warnings.filters), torch.is_grad_enabled(), torch.get_default_dtype()) == before
    (tmp_path / "ordinary").mkdir()
    for number in range(2):
        assert opbridge.load(tmp_path / f"b{number}").inputs
        assert (tmp_path / f"b{number}").stat().st_mode == (tmp_path / "ordinary").stat().st_mode
