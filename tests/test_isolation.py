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

from opbridge.errors import EngineError, InputError
from opbridge.isolation import IsolatedSession


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
    with pytest.raises(InputError, match=r"'text\.onnx' is no ONNX model"):
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


def test_a_crash_names_the_signal_and_ends_the_session(scripted):
    session = scripted("sys.stderr.write('about to read\\n'); ctypes.string_at(0)")
    with pytest.raises(EngineError, match=r"scripted crashed \(SIGSEGV\) while running the model") as caught:
        session.run({"x": X})
    assert "a crash is a bug of the engine" in caught.value.fix
    assert "about to read" in caught.value.details
    with pytest.raises(EngineError, match="The session of scripted is closed"):
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


def test_a_hang(scripted):
    start = time.perf_counter()
    session = scripted("time.sleep(60)", timeout=1.5)
    with pytest.raises(EngineError, match=r"did not finish running the model within 1\.5 seconds"):
        session.run({"x": X})
    assert time.perf_counter() - start < 30


def test_a_python_error(scripted):
    with scripted("raise KeyError('weight')") as session:
        with pytest.raises(EngineError, match="scripted failed while running the model: KeyError: 'weight'") as caught:
            session.run({"x": X})
        assert "Traceback" in caught.value.details
        with pytest.raises(EngineError, match="KeyError"):
            session.run({"x": X})


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't enforce a limit of address space")
def test_the_memory_limit(scripted):
    with (
        scripted("np.ones(400_000_000)", memory_limit=2 << 30) as session,
        pytest.raises(EngineError, match="scripted ran out of memory while running the model"),
    ):
        session.run({"x": X})


def test_close_ends_the_child(scripted):
    session = scripted("")
    process = session._process._process
    session.close()
    session.close()
    assert process.poll() == 0


def test_strings_can_not_be_sent(tmp_path):
    path = save(one_node("Identity", [("STRING", [1])], [("STRING", [1])]), tmp_path / "strings.onnx")
    with IsolatedSession("onnxruntime", path) as session, pytest.raises(InputError, match="holds Python objects"):
        session.run({"x0": np.array(["a"])})


def test_a_child_without_a_parent_ends(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-m", "opbridge.engines.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.communicate(timeout=20)
    assert child.returncode == 0
