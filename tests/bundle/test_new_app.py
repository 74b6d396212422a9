"""``opbridge new-app``: the C++ program of a bundle gives what Python gives, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_models import Extremes

import opbridge
from opbridge.bundle.new_app import new_app
from opbridge.bundle.write import write_bundle
from opbridge.catalog.declare.operator import without_kernels
from opbridge.cli import main
from opbridge.errors import InputError
from opbridge.kernels.binary import own_platform

pytestmark = [pytest.mark.newest, pytest.mark.filterwarnings("ignore")]
TOOLS = pytest.mark.skipif(
    shutil.which("cmake") is None or not any(map(shutil.which, ("g++", "clang++"))),
    reason="not run: needs cmake and a C++ compiler",
)


ENGINES = ("onnxruntime", "openvino")
ODD = 'the "off/set" = $1\\\t图?'
"""A name of an input."""


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(shlex.split(command), cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle for both engines, whose own CMake project built its libraries of kernels again."""
    for engine in ENGINES:
        pytest.importorskip(engine)
    folder = tmp_path_factory.mktemp("new app")
    with without_kernels():
        opbridge.export(
            Extremes(),
            (torch.randn(3, 2), torch.randn(3, 2)),
            path=folder / "the bundle",
            engines=ENGINES,
            dynamic_shapes={"x": {0: "n"}, "offset": {0: "n"}},
            input_names=["x", ODD],
            verify=False,
        )
    for command in ("cmake -S 'the bundle/kernels' -B kernels -DCMAKE_BUILD_TYPE=Release", "cmake --build kernels"):
        done = shell(command, folder)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.quick("onnxruntime", every=0)
@pytest.mark.one_worker
@TOOLS
@pytest.mark.parametrize("engine", ENGINES)
def test_the_program_gives_what_python_gives(
    engine: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder / "the bundle", "the bundle")
    assert main(["new-app", "the bundle", "-o", "the program", "--engine", engine, "--trust", "--json"]) == 0
    for command in json.loads(capsys.readouterr().out)["commands"][:2]:
        done = shell(command, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    arrays = np.random.default_rng(0).standard_normal((2, 5, 2)).astype(np.float32)
    expected = opbridge.load("the bundle", engine, trust=True).run({"x": arrays[0], ODD: arrays[1]})
    shutil.copy(folder / f"kernels/{engine}_kernels.so", "the bundle/kernels")
    np.save("x.npy", arrays[0])
    np.save("the offset.npy", arrays[1])
    program = f"'the program/build/run_{engine}' 'the bundle' x=x.npy"
    done = shell(f"{program} {shlex.quote(f'{ODD}=the offset.npy')}", tmp_path)
    assert done.returncode == 0, done.stderr
    for name, array in expected.items():
        found = np.load(f"{name}.npy")
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    np.save("doubles.npy", arrays[1].astype(float))
    for argument, says in (
        ("", f"add {ODD}=FILE.npy"),
        (f"{ODD}=doubles.npy", f"{ODD} is an array of <f8, not of <f4"),
        (f"{ODD}=none.npy", "none.npy is not a .npy file"),
        ("y=none.npy", "y=none.npy is not NAME=FILE.npy with the name of an input"),
    ):
        done = shell(f"{program} {shlex.quote(argument) if argument else ''}", tmp_path)
        assert (done.returncode, done.stderr.strip()) == (1, says)


def written(place: Path, engine: str, dtype: str, kernels: Sequence[Mapping[str, Any]] = ()) -> Path:
    """A bundle of an empty file with an input of an element type."""
    value = {"name": "x", "dtype": dtype, "shape": [2]}
    models = [{"file": "model.onnx", "engines": [engine], "opset": 18, "ir_version": 9}]
    manifest = {"entry": None, "models": models, "inputs": [value], "outputs": [value], "kernels": list(kernels)}
    write_bundle(place, manifest, lambda folder: (folder / "model.onnx").write_bytes(b""), sources={})
    return place


@pytest.mark.parametrize(
    ("engine", "dtype", "asked", "says"),
    [
        ("reference", "float32", None, "There is no C++ program for reference, only for onnxruntime, openvino."),
        ("onnxruntime", "float32", "ncnn", "There is no C++ program for ncnn"),
        ("onnxruntime", "float32", "openvino", "holds no model for the engine 'openvino'"),
        ("onnxruntime", "str", None, "'x' is of str, which .npy files can't hold."),
        ("onnxruntime", "bfloat16", None, "'x' is of bfloat16, which .npy files can't hold."),
    ],
)
def test_what_is_refused(engine: str, dtype: str, asked: str | None, says: str, tmp_path: Path) -> None:
    bundle = written(tmp_path / "bundle", engine, dtype)
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        new_app(bundle, tmp_path / "app", engine=asked)
    assert caught.value.fix
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bundle"]


def test_a_folder_that_exists_is_not_written_to(tmp_path: Path) -> None:
    bundle = written(tmp_path / "bundle", "onnxruntime", "float32")
    app = new_app(bundle, tmp_path / "app")
    assert all(file.is_file() for file in app.files)
    with pytest.raises(InputError, match="app exists already"):
        new_app(bundle, tmp_path / "app")


def test_a_strangers_kernels_are_left_out_and_a_note_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = {"engine": "onnxruntime", "file": "model.onnx", "platform": own_platform(), "operators": []}
    bundle = written(
        tmp_path / "bundle", "onnxruntime", "float32", kernels=[{**library, "native": False, "optional": True}]
    )
    assert new_app(bundle, tmp_path / "mine").note == ""
    assert 'library = "model.onnx"' in (tmp_path / "mine" / "bundle.h").read_text()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "stranger"))
    assert "was not made by you on this machine" in new_app(bundle, tmp_path / "app").note
    assert 'library = ""' in (tmp_path / "app" / "bundle.h").read_text()
