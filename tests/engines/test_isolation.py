"""The child process: what comes through, and how it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from one_node import FLOAT, one_node, save
from test_engines import ONNX_ENGINES

from opbridge.engines.process.isolation import IsolatedSession, Limits, limited
from opbridge.engines.process.limits import parse_size
from opbridge.errors import EngineCrashError, EngineError, InputError

pytestmark = pytest.mark.newest


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    return save(one_node("Relu", [(FLOAT, ["n"])], [(FLOAT, ["n"])]), tmp_path / "relu.onnx")


# An engine whose model file is a Python expression, so that a test says what happens inside the child.
SCRIPTED = """
import ctypes, os, sys, time
from pathlib import Path
import numpy as np
from opbridge.engines.base import Engine, Session, TensorSpec

class ScriptedSession(Session):
    inputs = (TensorSpec("x", "float32", ("n",)),)
    outputs = (TensorSpec("y", "float32", ("n",)),)
    def __init__(self, script):
        self.script = script
    def run(self, feeds):
        exec(self.script, {"os": os, "sys": sys, "time": time, "ctypes": ctypes, "np": np, "feeds": feeds})
        return {"y": feeds["x"]}

class ENGINE(Engine):
    name = package = "scripted"
    version = "1"
    newest_opset = 20
    def supports(self, node, opset_imports):
        return None
    def load(self, path, *, threads=None, providers=None, libraries=()):
        script = Path(path).read_text()
        if script.startswith("#load"):
            exec(script)
        return ScriptedSession(script)
"""


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch):
    """Makes a session of an engine that the child finds in a folder of the test's."""
    (tmp_path / "scripted").mkdir()
    (tmp_path / "scripted" / "__init__.py").write_text(SCRIPTED)
    hook = f"import opbridge.engines as e; e.__path__.append({str(tmp_path)!r})"
    (tmp_path / "sitecustomize.py").write_text(hook)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    def make(script: str, **options) -> IsolatedSession:
        (tmp_path / "script.txt").write_text(script)
        return IsolatedSession("scripted", tmp_path / "script.txt", **options)

    return make


X = np.array([-1, 2], np.float32)


@pytest.mark.quick("onnxruntime", "reference", every=3)
@pytest.mark.parametrize("engine", ONNX_ENGINES)
def test_it_computes_what_the_engine_computes(engine, relu):
    with IsolatedSession(engine, relu, threads=1) as session:
        assert [spec.to_dict() for spec in session.inputs] == [{"name": "x0", "dtype": "float32", "shape": ["n"]}]
        assert session.run({"x0": X})["y0"].tolist() == [0, 2]
        assert session(X)[0].tolist() == [0, 2]
        if engine == "ncnn":
            with pytest.raises(EngineError, match="ncnn has no empty tensors"):
                session.run({"x0": X[:0]})
        else:
            assert session.run({"x0": X[:0]})["y0"].shape == (0,)


def test_the_engine_collects_no_telemetry(relu, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    for name in ("ORT_DISABLE_TELEMETRY", "CI", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    with IsolatedSession("onnxruntime", relu) as session:
        session.run({"x0": X})
    assert not (home / ".cache").exists()


@pytest.mark.parametrize(
    ("dtype", "onnx_type"), [(ml_dtypes.bfloat16, "BFLOAT16"), (np.float16, "FLOAT16"), (np.bool_, "BOOL")]
)
def test_dtypes_and_rank_0(tmp_path, dtype, onnx_type):
    path = save(one_node("Identity", [(onnx_type, [])], [(onnx_type, [])]), tmp_path / "identity.onnx")
    with IsolatedSession("onnxruntime", path) as session:
        result = session.run({"x0": np.array(1, dtype)})["y0"]
    assert result.dtype == dtype
    assert result.shape == ()
    assert result == np.array(1, dtype)


def test_errors_of_the_engine_and_of_the_input_pass_through(tmp_path, relu):
    with IsolatedSession("onnxruntime", relu) as session:
        with pytest.raises(InputError, match="Input 'x0' takes dtype float32, but got float64"):
            session.run({"x0": np.zeros(2)})
        assert session.run({"x0": X})["y0"].tolist() == [0, 2]
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(InputError, match=r"'text\.onnx' is not an ONNX model"):
        IsolatedSession("onnxruntime", tmp_path / "text.onnx")
    with pytest.raises(InputError, match="There is no engine 'foo'"):
        IsolatedSession("foo", relu)
    model = save(one_node("Frobnicate", [(FLOAT, [2])], [(FLOAT, [2])], domain="mine"), tmp_path / "strange.onnx")
    with pytest.raises(EngineError, match=r"refuses 'strange\.onnx'"):
        IsolatedSession("onnxruntime", model)


def test_the_child_imports_neither_torch_nor_onnx(scripted):
    script = (
        "import importlib; importlib.import_module('onnxruntime')\n"
        "found = [m for m in ('torch', 'onnx', 'onnx_ir', 'onnxscript') if m in sys.modules]\nassert not found, found"
    )
    with scripted(script) as session:
        session.run({"x": X})


def test_what_an_engine_prints_does_not_disturb_the_answers(scripted):
    with scripted("print('hello'); os.write(1, b'raw bytes' * 1000); os.system('echo from a child')") as session:
        for _ in range(3):
            assert session.run({"x": X})["y"].tolist() == [-1, 2]


def test_large_arrays(scripted):
    large = np.arange(3_000_000, dtype=np.float32)
    with scripted("") as session:
        assert np.array_equal(session.run({"x": large})["y"], large)


def test_a_crash_names_the_signal(scripted):
    session = scripted("sys.stderr.write('about to read\\n'); ctypes.string_at(0)")
    with pytest.raises(EngineCrashError, match=r"scripted crashed \(SIGSEGV\) while running the model") as caught:
        session.run({"x": X})
    assert "a crash is a bug in the engine" in caught.value.fix
    assert "about to read" in caught.value.details
    assert (caught.value.cause, caught.value.signal) == ("crashed", "SIGSEGV")


def test_after_a_crash_the_next_run_is_in_a_fresh_process(scripted):
    with scripted("feeds['x'][0] < 0 and ctypes.string_at(0)") as session:
        for _ in range(3):
            with pytest.raises(EngineCrashError, match="SIGSEGV"):
                session.run({"x": X})
            assert session.run({"x": -X})["y"].tolist() == [1, -2]


def test_after_three_crashes_in_a_row_it_is_given_up(scripted):
    with scripted("ctypes.string_at(0)") as session:
        for _ in range(3):
            with pytest.raises(EngineCrashError, match="SIGSEGV"):
                session.run({"x": X})
        with pytest.raises(EngineCrashError, match="crashed or hung 3 times in a row, and is not started again"):
            session.run({"x": X})


def test_a_closed_session_stays_closed(scripted):
    session = scripted("")
    session.close()
    with pytest.raises(EngineError, match="The session of scripted was closed"):
        session.run({"x": X})


def test_a_crash_while_loading(scripted):
    with pytest.raises(EngineError, match=r"scripted crashed \(SIGABRT\) while loading the model"):
        scripted("#load\nos.abort()")


def test_being_killed_points_to_memory(scripted):
    with (
        scripted(f"os.kill(os.getpid(), {int(signal.SIGKILL)})") as session,
        pytest.raises(EngineError, match="SIGKILL") as caught,
    ):
        session.run({"x": X})
    assert "memory" in caught.value.fix


def test_an_exit(scripted):
    with (
        scripted("print('giving up', flush=True); os._exit(3)") as session,
        pytest.raises(EngineError, match=r"exit code 3 while running the model\. The last line it printed: giving up"),
    ):
        session.run({"x": X})


@pytest.mark.slow
def test_a_hang(scripted):
    start = time.perf_counter()
    session = scripted("time.sleep(60)", limits=Limits(seconds=1.5))
    with pytest.raises(EngineCrashError, match=r"did not finish running the model within 1\.5 seconds") as caught:
        session.run({"x": X})
    assert caught.value.cause == "out of time"
    assert time.perf_counter() - start < 30


@pytest.mark.slow
def test_limits_in_force(scripted):
    with limited(time_limit=1.5), limited(memory_limit=1 << 40):
        session = scripted("time.sleep(60)")
    # They are those at the time when the session was made.
    with pytest.raises(EngineCrashError, match=r"within 1\.5 seconds"):
        session.run({"x": X})
    with pytest.raises(InputError, match="leaves no time"), limited(time_limit=0):
        pass
    with pytest.raises(InputError, match="leaves no memory"), limited(memory_limit=0):
        pass
    with limited(time_limit=float("inf")):
        assert scripted("").settings.limits.seconds is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GiB", 4 << 30), ("4 g", 4 << 30), ("1.5G", 3 << 29), ("500MB", 500_000_000), ("1234", 1234), ("7b", 7)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "4 gigabytes", "-1G", "1e9"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="is not a size; write 4GiB"):
        parse_size(text)


def test_a_python_error(scripted):
    with scripted("raise KeyError('weight')") as session:
        with pytest.raises(EngineError, match="scripted failed while running the model: KeyError: 'weight'") as caught:
            session.run({"x": X})
        assert "Traceback" in caught.value.details
        with pytest.raises(EngineError, match="KeyError"):
            session.run({"x": X})


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't enforce a limit of memory")
@pytest.mark.parametrize(
    "script",
    [
        "np.ones(400_000_000)",
        # What a C++ engine does with an allocation that fails, and does not expect to.
        "os.write(2, b\"terminate called after throwing an instance of 'std::bad_alloc'\"), os.abort()",
    ],
)
def test_the_memory_limit(scripted, script):
    with (
        scripted(script, limits=Limits(memory=2 << 30)) as session,
        pytest.raises(EngineCrashError, match="ran out of memory within the limit of 2 GiB while running") as caught,
    ):
        session.run({"x": X})
    assert caught.value.cause == "out of memory"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't enforce a limit of memory")
def test_onnxruntime_out_of_memory(tmp_path):
    model = one_node("Expand", [(FLOAT, [1]), ("INT64", [1])], [(FLOAT, ["n"])])
    limits = Limits(memory=1 << 30)
    with IsolatedSession("onnxruntime", save(model, tmp_path / "expand.onnx"), threads=1, limits=limits) as session:
        with pytest.raises(EngineCrashError, match="onnxruntime ran out of memory within the limit of 1 GiB"):
            session.run({"x0": X[:1], "x1": np.array([1 << 29])})
        assert session.run({"x0": X[:1], "x1": np.array([3])})["y0"].tolist() == [-1, -1, -1]


def test_close_ends_the_child(scripted):
    session = scripted("")
    process = session._process._process
    session.close()
    session.close()
    assert process.poll() == 0


@pytest.mark.parametrize("strings", [np.array(["a", "é\\n"], object), np.array(["bc"]), np.array([], object)])
def test_strings(tmp_path, strings):
    path = save(one_node("Identity", [("STRING", ["n"])], [("STRING", ["n"])]), tmp_path / "strings.onnx")
    with IsolatedSession("onnxruntime", path) as session:
        result = session.run({"x0": strings})["y0"]
        assert result.dtype == object
        assert result.tolist() == strings.tolist()
        with pytest.raises(InputError, match="holds Python objects"):
            session.run({"x0": np.array([{}], object)})


def test_a_child_without_a_parent_ends(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-m", "opbridge.engines.process.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.communicate(timeout=20)
    assert child.returncode == 0


BUSY = """
import numpy as np, sys
from opbridge.engines.process.isolation import IsolatedSession
session = IsolatedSession("scripted", sys.argv[1])
print(session._process._process.pid, flush=True)
session.run({"x": np.zeros(1, np.float32)})
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there a process does not know that its parent has gone")
def test_a_busy_child_ends_when_its_parent_is_killed(tmp_path, scripted):
    scripted("").close()  # It makes the engine's files.
    (tmp_path / "script.txt").write_text("time.sleep(60)")
    parent = subprocess.Popen([sys.executable, "-c", BUSY, str(tmp_path / "script.txt")], stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 20
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Where nobody collects it, it stays as a zombie.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
