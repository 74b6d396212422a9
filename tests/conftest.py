"""Fixtures, and what the marks ``quick`` and ``one_worker`` do."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

if gc.isenabled():
    # The default looks through all objects of torch and sympy hundreds of times, a seventh of the time of the tests.
    gc.set_threshold(100_000, 50, 50)

from browser import chromium, page  # noqa: F401 - fixtures, one browser for all files
from checked_passes import check_every_pass
from engine_in_process import sessions_start_no_process

if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers share the cores: threads of torch beside those of another worker wait for each other. It is read once,
    # by the first import of torch, here and in the processes that tests start.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import opbridge.verbs  # noqa: F401 - installs the hooks of the old ways, which every user of a verb has
from opbridge.kernels import compiler


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow, or as sweeps, the cases of a parametrized test that its mark ``quick`` does not name."""
    others: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("quick")
        if mark is not None and not any(text in item.name.partition("[")[2] for text in mark.args):
            test = item.nodeid.partition("[")[0]
            every = mark.kwargs.get("every", 1)
            is_slow = every > 0 and others[test] % every == 0
            others[test] += 1
            item.add_marker(pytest.mark.slow if is_slow else pytest.mark.sweep)


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Give a test the same random numbers however many ran before it."""
    torch.manual_seed(0)


def pytest_configure(config: pytest.Config) -> None:
    """Check every pass, and let tests be interrupted: children inherit the ignored SIGINT of a background process.

    Without the slow tests, kernels are compiled in half of the time.
    """
    check_every_pass()
    if "not slow" in config.option.markexpr:
        optimize_less()
        sessions_start_no_process()
    torch.manual_seed(0)  # what test modules draw while they are imported
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    """Don't look through all objects a last time when the process ends."""
    gc.freeze()


def optimize_less() -> None:
    """Compile kernels with ``-O1`` in this process from now on: the numbers are the same."""
    own = compiler.compile_flags

    def flags(**options: bool) -> list[str]:
        return ["-O1" if flag == "-O3" else flag for flag in own(**options)]

    compiler.compile_flags = flags  # type: ignore[assignment]


@functools.cache
def _runs_in_one_worker(file: str) -> bool:
    return "pytest.mark.one_worker" in (Path(__file__).parents[1] / file).read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give tests to the workers one by one, but those of a file with the mark ``one_worker`` together."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if _runs_in_one_worker(file) else nodeid

    return Scheduling(config, log)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a model, and caches of its own."""
    from command_lines import small_model

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("SLOW", str(tmp_path / "slow"))
    small_model(tmp_path / "m.onnx")
    return tmp_path
