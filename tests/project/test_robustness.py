"""Processes that are killed, disks that are full, bundles that are damaged: nothing is lost, and it is said."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crashing_engine
import numpy as np
import pytest
from command_lines import Ran, opbridge, slow_engine, small_model
from one_node import FLOAT, one_node, to_ir

from opbridge import engines
from opbridge.cli import main
from opbridge.engines.trial import TrialSupport
from opbridge.errors import BuildError, InputError
from opbridge.kernels.binary import own_platform
from opbridge.kernels.compiler import build

pytestmark = [pytest.mark.newest, pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and limits")]

ENGINES = ("--engine", "crashing")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and a bundle of it, for tests that copy it."""
    folder = tmp_path_factory.mktemp("made")
    small_model(folder / "m.onnx")
    assert main(["export", str(folder / "m.onnx"), "-o", str(folder / "b"), "--engine", "reference", "-q"]) == 0
    return folder


def ends(process: int) -> bool:
    for _ in range(200):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        stat = Path(f"/proc/{process}/stat")
        if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def visible(folder: Path) -> set[str]:
    return set(os.listdir(folder)) - {"cache", "slow", "engine", "m.onnx", "temporary"}


def left_behind(place: Path) -> list[str]:
    """Temporary files of ours: torch and ONNX Runtime have some of their own, which they use again."""
    return [name for name in os.listdir(place / "temporary") if name.startswith(("opbridge", ".opbridge", "tmp"))]


# The engine's process.


@pytest.mark.slow
def test_a_crash_is_a_result_and_the_other_cases_are_run(place, monkeypatch, capfd):
    crashing_engine.install(place / "engine", monkeypatch, "Sinh=crash")
    ran = Ran(capfd, "export", "m.onnx", "-o", "b", *ENGINES, "--json")
    assert ran.code == 1
    verification = ran.data["verification"]
    assert verification["verdict"] == "error"
    assert [case["verdict"] for case in verification["cases"]] == ["error", "error", "error"]
    assert "crashed (SIGSEGV) while running the model" in verification["error"]
    assert "It happens at node 'sinh' (ai.onnx::Sinh)" in verification["error"]
    crashes = verification["crashes"]
    assert [(crash["case"], crash["signal"], crash["node"]) for crash in crashes] == [
        ("first sizes", "SIGSEGV", "sinh"), ("sizes 2", "SIGSEGV", "sinh"), ("sizes 3", "SIGSEGV", "sinh"),
    ]  # fmt: skip
    assert "something is odd" in crashes[0]["log"]


@pytest.mark.sweep
def test_killing_the_engine_costs_one_case(place, monkeypatch):
    crashing_engine.install(place / "engine", monkeypatch, "Sinh=slow")
    process = opbridge("export", "m.onnx", "-o", "b", *ENGINES, "--json")
    os.kill(slow_engine(place), signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    verification = json.loads(out)["verification"]
    assert [case["verdict"] for case in verification["cases"]] == ["error", "passed", "passed"]
    (crash,) = verification["crashes"]
    assert (crash["cause"], crash["signal"], crash["node"]) == ("killed", "SIGKILL", "")
    assert crash["detail"] == "a second run in a new process did not end in this way"
    assert left_behind(place) == []


def test_a_crash_while_the_engine_compiles_the_model(place, monkeypatch, capfd):
    crashing_engine.install(place / "engine", monkeypatch, "all=compile")
    ran = Ran(capfd, "export", "m.onnx", "-o", "b", *ENGINES, "--no-verify", "-q")
    assert ran.code == 1
    assert "error: crashing crashed (SIGSEGV) while compiling the model" in ran.err
    assert visible(place) == set()


class OnTrial(TrialSupport):
    """The crashing engine, asked as TVM and ncnn are."""

    def known_reason(self, node, opset):
        return None


JUDGE_CRASHES = """
import os, opbridge.engines.onnxruntime.builds as builds
judged = builds.InstalledBuild.refusal_of
builds.InstalledBuild.refusal_of = lambda self, model: os.abort() if b"Sinh" in model else judged(self, model)
"""


@pytest.mark.slow
def test_a_crash_at_a_question_is_a_refusal(place, monkeypatch):
    crashing_engine.install(place / "engine", monkeypatch, "Cosh=abort,Sinh=load")
    with (place / "engine" / "sitecustomize.py").open("a") as hook:
        hook.write(JUDGE_CRASHES)

    def reason(ask: Callable[..., Any], op_type: str) -> str:
        model = to_ir(one_node(op_type, [(FLOAT, [2])], [(FLOAT, [2])]))
        refusal = ask(model.graph[0], model.opset_imports)
        return "" if refusal is None else refusal.reason

    on_trial = OnTrial("Crashing 1.0", "crashing").ask
    assert reason(on_trial, "Cosh").startswith("Crashing 1.0 crashed (SIGABRT) while running a model of one node")
    assert reason(on_trial, "Sinh").startswith("Crashing 1.0 crashed (SIGSEGV) while loading a model of one node")
    assert reason(on_trial, "Abs") == ""
    onnxruntime = type(engines.get("onnxruntime"))().supports
    assert "onnxruntime crashed (SIGABRT) while judging a node" in reason(onnxruntime, "Sinh")
    assert reason(onnxruntime, "Abs") == ""


@pytest.mark.slow
def test_limits_on_the_command_line(made, place, monkeypatch, capfd):
    crashing_engine.install(place / "engine", monkeypatch, "Sinh=hang")
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    ran = Ran(capfd, "export", "m.onnx", "-o", "b", *ENGINES, "--no-verify", "--json")
    assert ran.code == 0
    ran = Ran(capfd, "run", "b", "--input", "x.npz", "-o", "y.npz", *ENGINES, "--time-limit", "2")
    assert ran.code == 1
    assert "crashing did not finish running the model within 2 seconds" in ran.err
    assert not (place / "y.npz").exists()


# opbridge's own process.


@pytest.mark.quick(every=2)
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGKILL", -9)])
def test_killing_an_export(made, place, monkeypatch, capfd, name, code):
    shutil.copytree(made / "b", place / "b")
    before = (place / "b" / "bundle.json").read_bytes()
    crashing_engine.install(place / "engine", monkeypatch, "Sinh=slow")
    process = opbridge("export", "m.onnx", "-o", "b", *ENGINES, "--overwrite")
    engine = slow_engine(place)
    process.send_signal(getattr(signal, name))
    process.communicate(timeout=60)
    assert process.returncode == code
    assert ends(engine)
    if name == "SIGINT":
        assert left_behind(place) == []
    assert (place / "b" / "bundle.json").read_bytes() == before
    if name == "SIGKILL":
        assert len(visible(place)) == 2
        monkeypatch.setenv("CRASHES", "")
        assert Ran(capfd, "export", "m.onnx", "-o", "b", "--engine", "reference", "--overwrite", "-q").code == 0
    assert visible(place) == {"b"}


# A full disk.


@contextlib.contextmanager
def small_files(size: int) -> Iterator[None]:
    """Limits the size of files. A larger one is an error of the same kind as a full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("weights", "room"), [(100_000, 200_000), (4, 1000)], ids=["weights", "manifest"])
def test_no_room_for_the_bundle(place, capfd, weights, room):
    small_model(place / "m.onnx", weights=weights)
    with small_files(room):
        ran = Ran(capfd, "export", "m.onnx", "-o", "b", "--engine", "reference", "--no-verify")
    assert ran.code == 1
    assert "error: Can't write b: File too large. Nothing was written." in ran.err
    assert "fix: free some disk space" in ran.err
    assert visible(place) == set()


def test_no_room_for_the_captured_program(place, capfd):
    entry = "import torch\ndef model():\n    return torch.nn.Linear(40, 40), (torch.ones(2, 40),)\n"
    (place / "net.py").write_text(entry)
    with small_files(6000):
        ran = Ran(capfd, "export", "net.py:model", "-o", "b", "--engine", "none", "--with-reference", "--no-verify")
    assert ran.code == 1
    assert "error: Can't write b: File too large. Nothing was written." in ran.err
    assert visible(place) - {"__pycache__"} == {"net.py"}


@pytest.mark.slow
def test_no_room_for_the_verification(made, place, capfd):
    shutil.copytree(made / "b", place / "b")
    before = (place / "b" / "verification.json").read_bytes()
    with small_files(1000):
        ran = Ran(capfd, "verify", "b", "--reference", "m.onnx")
    assert ran.code == 1
    assert "passed on 3 cases, but this can't be recorded: Can't write b/verification.json: File too large" in ran.err
    assert "fix: free some disk space" in ran.err
    assert (place / "b" / "verification.json").read_bytes() == before
    assert not [name for name in os.listdir(place / "b") if name.startswith(".")]


@pytest.mark.slow
def test_no_room_for_outputs(made, place, capfd):
    np.savez("x.npz", x=np.ones((500, 4), np.float32))
    with small_files(2000):
        ran = Ran(capfd, "run", made / "b", "--input", "x.npz", "-o", "y.npz", "--engine", "reference")
    assert ran.code == 1
    assert "error: Can't write y.npz: File too large" in ran.err
    assert visible(place) == {"x.npz"}


# A damaged bundle.


def damage(file: Path, how: str) -> None:
    content = file.read_bytes()
    if how == "missing":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        file.write_bytes(b"")
    else:
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 0x81]) + content[middle + 1 :])


@pytest.mark.parametrize("how", ["missing", "truncated", "empty", "flipped"])
@pytest.mark.parametrize("name", ["bundle.json", "model.onnx"])
def test_a_damaged_bundle_is_not_used(made, place, capfd, name, how):
    shutil.copytree(made / "b", place / "b")
    damage(place / "b" / name, how)
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    for command in (["verify", "b"], ["run", "b", "--input", "x.npz", "-o", "y.npz", "--engine", "reference"]):
        ran = Ran(capfd, *command)
        assert ran.code == 1
        assert "is damaged: " in ran.err or "it has no bundle.json" in ran.err
        assert name in ran.err
        assert "fix: " in ran.err
        assert "Traceback" not in ran.err


@pytest.mark.quick("truncated")
@pytest.mark.parametrize("how", ["missing", "truncated"])
def test_a_damaged_side_file_is_named_and_can_be_made_again(made, place, capfd, how):
    shutil.copytree(made / "b", place / "b")
    damage(place / "b" / "verification.json", how)
    # What is about to be replaced is not read.
    assert Ran(capfd, "verify", "b", "--reference", "m.onnx", "-q").code == 0
    assert json.loads((place / "b" / "verification.json").read_text())["verdict"] == "passed"
    damage(place / "b" / "sources.json", how)
    ran = Ran(capfd, "verify", "b", "-q")
    if ran.code:
        assert "sources.json" in ran.err or "is not here" in ran.err
        assert "fix: " in ran.err


# A library that can't be used.


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "reference"])
def test_a_library_for_another_platform(place, name):
    engine = engines.get(name)
    if not engine.is_installed():
        pytest.skip(f"not run: {name} is not installed")
    # The head of a shared library for ARM, or for Intel where this is ARM.
    machine = 0x3E if own_platform().endswith("aarch64") else 0xB7
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + bytes([3, 0, machine, 0]) + bytes(44)
    (place / "other.so").write_bytes(head)
    with pytest.raises(InputError, match=r"other\.so was built for linux-\w+, and this is") as caught:
        engine.load(place / "m.onnx", libraries=[place / "other.so"])
    assert caught.value.fix.startswith("build it again")


def test_no_room_for_a_kernel(place, monkeypatch):
    monkeypatch.setenv("OPBRIDGE_CACHE", str(place / "kernels"))
    (place / "same.h").write_text(
        '#include "opbridge.h"\nvoid same_shape(opbridge::ShapeCall& call) { call.set_output(0, call.sizes(0)); }\n'
        "template <class T> void same(opbridge::Call& call) { call.output<T>(0)[0] = call.input<T>(0)[0]; }\n"
        'OPBRIDGE_OPERATOR(same, same_shape, "mylib::same(T x) -> T y", opbridge::types<float>)\n'
    )
    full = pytest.raises(BuildError, match=r"same\.h can't be compiled, because a disk is full")
    with small_files(4096), full as caught:
        build([place / "same.h"])
    assert "OPBRIDGE_CACHE" in caught.value.fix
    assert not [file.name for file in (place / "kernels").rglob("*") if file.is_file() and file.suffix != ".lock"]
