"""Several engines at once: one bundle for them, and their list."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_models import Extremes, SoftSteps
from places import ROOT

import opbridge
from opbridge import engines
from opbridge.catalog.declare.operator import without_kernels
from opbridge.cli import main
from opbridge.engines.listing import list_engines
from opbridge.errors import InputError

pytestmark = [
    pytest.mark.newest,
    pytest.mark.slow,
    pytest.mark.one_worker,
    pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="not run: kernels need a C++ compiler"),
]
THREE = ("onnxruntime", "openvino", "reference")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> opbridge.Bundle:
    """A model with a kernel for three engines."""
    pytest.importorskip("openvino", reason="not run: openvino is not installed")
    with without_kernels():
        return opbridge.export(
            Extremes(),
            (torch.randn(4, 5), torch.randn(4, 5)),
            path=tmp_path_factory.mktemp("together") / "bundle",
            engines=THREE,
            dynamic_shapes={"x": {0: "n"}, "offset": {0: "n"}},
        )


def test_a_bundle_holds_one_model_per_need_and_the_libraries_that_each_engine_loads(bundle):
    assert bundle.verified, bundle.verification
    # With a body beside the kernel for ONNX Runtime; without one for the engines that take no functions.
    models = {model["file"]: model["engines"] for model in bundle.manifest["models"]}
    assert models == {"model.onnx": ["onnxruntime"], "model.openvino.onnx": ["openvino", "reference"]}
    suffix = Path(bundle.kernels("onnxruntime")["file"]).suffix
    files = {name: bundle.kernels(name)["file"] for name in THREE}
    assert files == {
        "onnxruntime": f"kernels/onnxruntime_kernels{suffix}",
        "openvino": f"kernels/openvino_kernels{suffix}",
        "reference": f"kernels/plain_kernels{suffix}",
    }
    sources = {f"kernels/src/{name}" for name in ("extremes.h", "opbridge.h", "openvino/adapter.cc")}
    assert sources <= set(bundle.manifest["files"])
    cmake = (bundle.path / "kernels" / "CMakeLists.txt").read_text()
    for name in ("onnxruntime_kernels", "openvino_kernels", "plain_kernels"):
        assert f"add_library({name} SHARED" in cmake
    assert cmake.count("find_engine(OpenVINO openvino)") == 1


def test_every_engine_of_a_bundle_gives_the_same(bundle):
    x, offset = np.random.default_rng(0).standard_normal((2, 6, 5)).astype(np.float32)
    results = [opbridge.load(bundle.path, name)(x, offset) for name in THREE]
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_one_library_of_another_abi_version(bundle, tmp_path):
    copy = tmp_path / "old.so"
    source = tmp_path / "old.cc"
    source.write_text(
        '#include "opbridge/abi.h"\n'
        "const opbridge_library* opbridge_get_library(void) {\n"
        '  static opbridge_library library{7, sizeof(opbridge_library), "", nullptr, nullptr, 1};\n'
        "  return &library;\n}\n"
    )
    include = f"-I{Path(opbridge.__file__).parent / 'kernels'}"
    compiler = shutil.which("g++") or shutil.which("clang++")
    subprocess.run([compiler, "-shared", "-fPIC", include, str(source), "-o", str(copy)], check=True)
    for name in ("openvino", "reference"):
        with pytest.raises(InputError, match=r"old\.so was built for version 7 of opbridge's kernel ABI") as caught:
            opbridge.load(bundle.path, name, kernels=False, libraries=[copy])
        assert caught.value.fix.startswith("build it again")


def test_the_list_of_engines(capsys):
    known = {engine.name: engine for engine in list_engines()}
    assert sorted(known) == engines.names()
    onnxruntime = known["onnxruntime"]
    assert (onnxruntime.status, onnxruntime.runs, onnxruntime.kernels) == ("runs", True, "C++")
    assert known["reference"].kernels == "ctypes"
    assert known["reference"].without_python is False
    for engine in known.values():
        assert engine.install
        assert engine.runs or engine.detail
    assert main(["engines", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["engines"] == [engine.to_dict() for engine in known.values()]


def test_an_engine_that_is_missing_is_listed_with_its_install_line():
    program = (
        "import sys, json\nsys.modules['openvino'] = None\nfrom opbridge.cli import main\nmain(['engines', '-q'])\n"
    )
    environment = {**os.environ, "COLUMNS": "200"}
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert "openvino is not installed: pip install --upgrade openvino" in child.stdout


@pytest.mark.quick(every=2)
@pytest.mark.parametrize(("module", "engine"), [("openvino", "openvino"), ("tvm", "tvm")])
def test_an_engine_that_is_too_old_is_an_error_with_its_install_line(module, engine, tmp_path):
    (tmp_path / f"{module}.py").write_text("__version__ = '1.0'\nrelax = None\n")
    program = (
        "from opbridge.cli import main\n"
        f"raise SystemExit(main(['diagnose', 'examples/tutorial/my_add.py:model', '--engine', '{engine}', '-q']))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"}
    child = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    assert child.returncode == 1
    assert "is too old, or another module of that name" in child.stderr.lower().replace("\n", " ")
    assert f"pip install --upgrade {engines.get(engine).package}" in child.stderr
    assert "Traceback" not in child.stderr


def test_the_table_of_the_page_is_what_the_command_prints(capsys, monkeypatch):
    """Versions and what is installed differ from machine to machine; the columns and the names do not.

    A row stays one line, however narrow the terminal is.
    """
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["engines", "--markdown", "-q"]) == 0
    printed = capsys.readouterr().out.splitlines()
    page = (ROOT / "docs" / "engines.md").read_text()
    assert printed[0] in page
    for line in printed[2:]:
        assert f"\n{line.split('|')[1].join('||')}" in page


def test_a_function_body_is_inlined_for_engines_that_take_no_functions(tmp_path):
    pytest.importorskip("openvino", reason="not run: openvino is not installed")
    made = opbridge.export(
        SoftSteps(), (torch.randn(3, 4),), path=tmp_path / "bundle", engines=["onnxruntime", "openvino"], verify=False
    )
    changes = made.manifest["adaptations"]
    assert changes["onnxruntime"] == []
    assert [change["what"] for change in changes["openvino"]] == ["enginetest::soft_step is inlined"]
