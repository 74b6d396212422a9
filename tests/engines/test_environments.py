"""Another version of an engine, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from old_engine import MADE_TWICE, OLDEST, cache_of, old_engine  # noqa: F401 - a fixture
from one_node import DOUBLE, FLOAT, one_node, save, to_ir

import opbridge
from opbridge import engines
from opbridge.capture.entry import Entry
from opbridge.engines.environments import cached_environments, engine_environment
from opbridge.errors import EngineError, InputError

pytestmark = [pytest.mark.newest, pytest.mark.slow, pytest.mark.one_worker]


def ask(engine, model):
    converted = to_ir(model)
    return engine.supports(converted.graph[0], converted.opset_imports)


@pytest.mark.sweep
def test_two_processes_make_one_environment(old_engine):  # noqa: F811
    assert len(MADE_TWICE) == 2
    assert MADE_TWICE[0] == MADE_TWICE[1]
    folder = Path(MADE_TWICE[0][1])
    names = {entry.name for entry in folder.parent.iterdir() if entry.suffix not in (".lock", ".code")}
    assert names == {folder.name, f"onnxruntime=={OLDEST}.json"}, "nothing half-made stays"


def test_it_answers_for_itself(old_engine):  # noqa: F811
    today = engines.get("onnxruntime")
    assert (old_engine.name, old_engine.version) == (f"onnxruntime=={OLDEST}", OLDEST)
    assert old_engine.newest_opset < today.newest_opset
    assert old_engine.newest_ir_version < today.newest_ir_version
    assert 15 <= old_engine.newest_opset < 100
    assert engines.get(f"onnxruntime=={OLDEST}") is old_engine


def test_nodes_are_asked_of_that_version(old_engine):  # noqa: F811
    tensor = [(FLOAT, [None])]
    assert ask(old_engine, one_node("Relu", tensor, tensor, opset=old_engine.newest_opset)) is None
    refusal = ask(old_engine, one_node("Relu", tensor, tensor, opset=old_engine.newest_opset + 1))
    assert refusal.reason == (
        f"ONNX Runtime {OLDEST} takes opsets up to {old_engine.newest_opset}, not {old_engine.newest_opset + 1}"
    )
    foreign = ask(old_engine, one_node("Foo", tensor, tensor, domain="bar"))
    assert foreign.reason == "no kernel for bar::Foo"
    image = [(DOUBLE, [1, 1, 4, 4])]
    lacking = ask(old_engine, one_node("Conv", [*image, (DOUBLE, [1, 1, 3, 3])], image, opset=13))
    assert "Conv" in lacking.reason
    assert lacking.missing_dtypes == ("float64",)


def test_a_model_runs_there(old_engine, tmp_path):  # noqa: F811
    text = '<ir_version: 7, opset_import: ["": 13]> net (float[n] x) => (float[n] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "relu.onnx")
    session = opbridge.load(tmp_path / "relu.onnx", engine=old_engine.name)
    assert session.run({"x": np.array([-1, 2], np.float32)})["y"].tolist() == [0, 2]
    new = save(one_node("Relu", [(FLOAT, ["n"])], [(FLOAT, ["n"])], opset=23), tmp_path / "new.onnx")
    with pytest.raises(EngineError, match=f"ONNX Runtime {OLDEST} refuses 'new.onnx'"):
        opbridge.load(new, engine=old_engine.name)


def test_export_and_verify_for_it_and_for_today(old_engine, tmp_path):  # noqa: F811
    text = f"""<ir_version: 10, opset_import: ["": {engines.get("onnxruntime").newest_opset - 2}]>
        net (float[n, 8] x) => (float[n, 8] y) {{ g = Gelu(x) y = HardSwish(g) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    names = (old_engine.name, "onnxruntime")
    bundle = opbridge.export(tmp_path / "net.onnx", path=tmp_path / "b", engines=names)
    assert bundle.verified, bundle.verification
    assert bundle.manifest["versions"][old_engine.name] == OLDEST
    first = bundle.manifest["models"][0]
    assert (first["engines"], first["opset"]) == ([old_engine.name], old_engine.newest_opset)
    assert first["ir_version"] <= old_engine.newest_ir_version
    assert bundle.verification["engine"] == f"{old_engine.name}, onnxruntime"


def test_a_bundle_for_one_version_runs_in_another(old_engine, tmp_path):  # noqa: F811
    import torch

    bundle = opbridge.export(torch.nn.GELU(), (torch.randn(3),), path=tmp_path / "b", opset=13)
    assert bundle.verified
    found = opbridge.verify(
        tmp_path / "b", reference=Entry("", torch.nn.GELU(), (torch.randn(3),)), engines=[old_engine.name]
    )
    assert found.passed, found.summary()
    assert found.engine == old_engine.name


@pytest.mark.sweep
def test_doctor_and_the_command_line_know_it(old_engine, tmp_path):  # noqa: F811
    environment = {**os.environ, "OPBRIDGE_CACHE": str(cache_of(old_engine))}
    command = [sys.executable, "-m", "opbridge", "doctor", "--json"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout
    assert f'"name": "onnxruntime=={OLDEST}"' in said
    assert '"kind": "environment"' in said


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPBRIDGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_version_that_pip_does_not_offer(cache):
    with pytest.raises(InputError, match=r"pip offers no onnxruntime 0\.0\.7 for Python") as caught:
        engine_environment("onnxruntime", "0.0.7")
    assert OLDEST in caught.value.message
    assert caught.value.fix.startswith("choose one of these, for example onnxruntime==")
    assert cached_environments() == ()
    assert not [entry for entry in cache.rglob("*") if entry.is_file() and entry.suffix != ".lock"]


def test_no_network(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(EngineError, match="pip finds no version of onnxruntime at all") as caught:
        engine_environment("onnxruntime", "1.16.3")
    assert "check the network" in caught.value.fix


def test_a_python_that_can_not_make_environments(cache, monkeypatch):
    def fail(*args, **kwargs):
        raise subprocess.CalledProcessError(1, ["python", "-m", "ensurepip"])

    monkeypatch.setattr("venv.EnvBuilder.create", fail)
    with pytest.raises(EngineError, match=r"The environment of onnxruntime 1\.16\.3 can't be made in .*ensurepip"):
        engine_environment("onnxruntime", "1.16.3")
    assert not [entry for entry in cache.rglob("*") if entry.suffix != ".lock" and entry.name.startswith(("onnx", "."))]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("onnxruntime==newest", "'newest' is not a version of onnxruntime"),
        ("onnxruntim==1.16.3", "There is no engine 'onnxruntim==1.16.3'"),
    ],
)
def test_names_that_mean_nothing(cache, name, message):
    with pytest.raises(InputError, match=message):
        engines.get(name)


def test_an_engine_that_has_no_environments(tmp_path, monkeypatch):
    (tmp_path / "lonely").mkdir()
    (tmp_path / "lonely" / "__init__.py").write_text(
        "from opbridge.engines.base import Engine\nclass ENGINE(Engine):\n    name = package = 'lonely'\n"
    )
    monkeypatch.setattr(engines, "__path__", [*engines.__path__, str(tmp_path)])
    with pytest.raises(InputError, match=r"opbridge can ask only the installed lonely, not 'lonely==1.0'") as caught:
        engines.get("lonely==1.0")
    assert caught.value.fix == "install that version, and write --engine lonely."
