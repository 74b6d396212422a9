"""A sweep on a Ray cluster: a head and two workers on this machine, lost workers, and a driver that is killed.

Nothing of it runs where Ray is not installed (``pip install -e ".[ray]"``); ``.ci/run engines`` installs it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from places import SUPPORT

from opbridge.errors import InputError
from opbridge.sweep.rows import Row
from opbridge.sweep.run import run_sweep

ray = pytest.importorskip("ray", reason="Ray is not installed")

pytestmark = [pytest.mark.newest, pytest.mark.slow, pytest.mark.one_worker]

ZOO = str(SUPPORT / "sweep_zoo.py")
QUICK = ["naps*"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a head without CPUs and of two workers with one each."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    yield made.address
    made.shutdown()


def known(row: Row) -> tuple[object, ...]:
    """What is the same wherever the model ran."""
    return (row.key, row.status, row.causes, row.signal, row.stage, row.cases, row.weights)


def test_the_rows_are_those_of_the_local_pool(cluster: str, tmp_path: Path) -> None:
    names = ["good", "raises", "crashes"]
    local = run_sweep([ZOO], tmp_path / "local", patterns=names, jobs=2)
    spread = run_sweep([ZOO], tmp_path / "ray", patterns=names, ray=cluster)
    assert [row.status for row in local.rows] == ["pass", "eager", "crashed"]
    assert list(map(known, spread.rows)) == list(map(known, local.rows))


def test_no_row_is_lost_and_none_is_there_twice(cluster: str, tmp_path: Path) -> None:
    """A worker is killed while it runs a task, later the driver; a new driver goes on."""
    command = [sys.executable, "-m", "opbridge", "sweep", ZOO, "--filter", *QUICK, "--ray", cluster]
    driver = subprocess.Popen([*command, "-o", str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: bool(workers()))
    os.kill(workers()[0], signal.SIGKILL)
    wait_for(lambda: len(rows(tmp_path)) >= 1)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    before = rows(tmp_path)
    found = run_sweep([ZOO], tmp_path, patterns=QUICK, ray=cluster)
    assert found.new == 4 - len(before)
    assert {row.status for row in found.rows} == {"eager"}, "they end when they have napped"
    assert sorted(rows(tmp_path)) == [f"naps{number}" for number in range(4)]


def test_an_address_without_a_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no Ray cluster at '127\.0\.0\.1:9'"):
        run_sweep([ZOO], tmp_path, patterns=QUICK, ray="127.0.0.1:9")


def rows(folder: Path) -> list[str]:
    file = folder / "rows.jsonl"
    return [json.loads(line)["model"] for line in file.read_text().splitlines()] if file.exists() else []


def workers() -> list[int]:
    """The processes of Ray that run a task of a sweep now."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if name.startswith("ray::run_task"):
                found.append(int(folder.name))
    return found


def wait_for(holds: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)
