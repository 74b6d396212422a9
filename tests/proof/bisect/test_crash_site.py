"""At which node an engine crashes."""

from __future__ import annotations

from pathlib import Path

import crashing_engine
import numpy as np
import pytest
from one_node import FLOAT, make_model, save, value_info
from onnx import helper

from opbridge.engines.process.crash import Crash
from opbridge.engines.process.isolation import IsolatedSession, SessionSettings
from opbridge.engines.process.limits import Limits
from opbridge.errors import EngineCrashError, EngineError
from opbridge.proof.bisect.crash_site import CrashSites

pytestmark = pytest.mark.newest

X = np.array([0.5, 2], np.float32)


def chain(tmp_path: Path) -> Path:
    """Eight nodes with two branches; the Sinh is in the middle, and If has a Cosh inside."""
    inner = helper.make_graph(
        [helper.make_node("Cosh", ["d"], ["i"], name="inside")], "then", [], [value_info("i", (FLOAT, [2]))]
    )
    other = helper.make_graph([helper.make_node("Identity", ["d"], ["j"])], "else", [], [value_info("j", (FLOAT, [2]))])
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("Neg", ["x"], ["b"], name="neg"),
        helper.make_node("Sinh", ["a"], ["c"], name="sinh"),
        helper.make_node("Add", ["b", "c"], ["d"], name="add"),
        helper.make_node("If", ["yes"], ["e"], name="if", then_branch=inner, else_branch=other),
        helper.make_node("SequenceConstruct", ["e", "a"], ["f"], name="sequence"),
        helper.make_node("Atan", ["e"], ["k"], name="atan"),
        helper.make_node("ConcatFromSequence", ["f"], ["g"], name="concat", axis=0),
        helper.make_node("Sub", ["g", "x2"], ["y"], name="sub"),
    ]
    inputs = {"x": (FLOAT, [2]), "x2": (FLOAT, [1]), "yes": ("BOOL", [])}
    model = make_model(nodes, inputs, {"y": (FLOAT, [4]), "k": (FLOAT, [2])})
    return save(model, tmp_path / "chain.onnx")


FEEDS = {"x": X, "x2": X[:1], "yes": np.array(True)}


def crash_of(path: Path, **options) -> Crash:
    with IsolatedSession("crashing", path, **options) as session, pytest.raises(EngineCrashError) as caught:
        session.run(FEEDS)
    (crash,) = CrashSites().locate("example sizes", caught.value, FEEDS)
    return crash


@pytest.mark.slow
@pytest.mark.parametrize(
    ("crashes", "node", "operator", "signal"),
    [
        ("Abs=crash", "abs", "ai.onnx::Abs", "SIGSEGV"),
        ("Cosh=abort", "if", "ai.onnx::If", "SIGABRT"),
    ],
)
def test_it_names_the_node(tmp_path, monkeypatch, crashes, node, operator, signal):
    crashing_engine.install(tmp_path / "engine", monkeypatch, crashes)
    crash = crash_of(chain(tmp_path))
    assert (crash.case, crash.cause, crash.signal) == ("example sizes", "crashed", signal)
    assert (crash.node, crash.operator, crash.between) == (node, operator, ())
    assert "something is odd" in crash.log
    assert 3 <= crash.runs <= 6
    assert Crash.from_dict(crash.to_dict()) == crash


@pytest.mark.sweep
def test_where_the_model_can_not_be_cut_it_names_all(tmp_path, monkeypatch):
    crashing_engine.install(tmp_path / "engine", monkeypatch, "ConcatFromSequence=crash")
    crash = crash_of(chain(tmp_path))
    assert crash.between == ("sequence", "atan", "concat")
    assert "at one of the nodes 'sequence', 'atan', 'concat'" in str(crash)


@pytest.mark.slow
def test_memory_that_runs_out(tmp_path, monkeypatch):
    crashing_engine.install(tmp_path / "engine", monkeypatch, "Sinh=memory")
    crash = crash_of(chain(tmp_path))
    assert (crash.cause, crash.signal, crash.node) == ("out of memory", None, "sinh")


@pytest.mark.sweep
def test_a_hang(tmp_path, monkeypatch):
    crashing_engine.install(tmp_path / "engine", monkeypatch, "Sinh=hang")
    crash = crash_of(chain(tmp_path), limits=Limits(seconds=4))
    assert (crash.cause, crash.signal, crash.node) == ("out of time", None, "sinh")


@pytest.mark.slow
def test_a_crash_while_loading(tmp_path, monkeypatch):
    crashing_engine.install(tmp_path / "engine", monkeypatch, "Sinh=load")
    path = chain(tmp_path)
    with pytest.raises(EngineCrashError, match=r"SIGSEGV\) while loading the model") as caught:
        IsolatedSession("crashing", path)
    (crash,) = CrashSites().locate("", caught.value)
    assert (crash.case, crash.signal, crash.node) == ("", "SIGSEGV", "sinh")


def test_what_does_not_happen_again(tmp_path, monkeypatch):
    crashing_engine.install(tmp_path / "engine", monkeypatch, "")
    error = EngineCrashError("crashing crashed (SIGSEGV).", fix="none", cause="crashed", signal="SIGSEGV")
    error.settings = SessionSettings("crashing", chain(tmp_path))
    (crash,) = CrashSites().locate("sizes 2", error, FEEDS)
    assert (crash.node, crash.runs) == ("", 1)
    assert crash.detail == "a second run in a new process did not end in this way"


def test_a_model_that_is_no_onnx(tmp_path):
    error = EngineCrashError("it crashed.", fix="none")
    error.settings = SessionSettings("executorch", tmp_path / "model.pte")
    (crash,) = CrashSites().locate("sizes 2", error, FEEDS)
    assert "can't be cut" in crash.detail
    assert CrashSites().locate("sizes 2", EngineError("refused", fix="none")) == ()


@pytest.mark.sweep
def test_the_next_case_crashes_at_the_same_node_or_at_another(tmp_path, monkeypatch):
    crashing_engine.install(tmp_path / "engine", monkeypatch, "Abs=negative,Sinh=crash")
    sites = CrashSites()
    found = []
    with IsolatedSession("crashing", chain(tmp_path)) as session:
        for name, x in (("1", X), ("2", X + 1), ("3", -X)):
            feeds = {**FEEDS, "x": x}
            with pytest.raises(EngineCrashError) as caught:
                session.run(feeds)
            (crash,) = sites.locate(name, caught.value, feeds)
            found.append((crash.node, crash.runs))
    assert [node for node, _ in found] == ["sinh", "sinh", "abs"]
    assert found[1][1] == 3
