"""The comparison that the tables of reports and packages rest on says every verdict where it is due.

Most tests replace the exporter by one that writes a model by hand, so that it is known what is wrong with it.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import side_by_side_child as child
import torch
from one_node import make_model, save
from onnx import helper
from side_by_side import Row, compare, to_markdown
from side_by_side_equal import difference, shape_difference
from side_by_side_runs import Exported

pytestmark = pytest.mark.newest


def model(*nodes: tuple[str, list[str]], n: str | int = "n", outputs: int = 1) -> onnx.ModelProto:
    """A model of ``x``: a chain of (operator, inputs), each of which makes ``y``."""
    made = [helper.make_node(kind, inputs, ["y" if last else f"v{i}"]) for i, (kind, inputs, last) in _marked(nodes)]
    return make_model(made, {"x": ("FLOAT", [n, 3])}, {"y": ("FLOAT", None)})


def _marked(nodes):
    return [(i, (*node, i == len(nodes) - 1)) for i, node in enumerate(nodes)]


DOUBLE = model(("Add", ["x", "x"]))
SQUARE = model(("Mul", ["x", "x"]))
FIXED = model(("Add", ["x", "x"]), n=4)
NEGATED = model(("Add", ["x", "x"]), ("Neg", ["v0"]))
UNKNOWN = model(("NoSuchOperator", ["x"]))


def judged(target: str, written: onnx.ModelProto, folder: Path, monkeypatch, *, exporter="opbridge", says="passed"):
    path = save(written, folder / "model.onnx")
    monkeypatch.setitem(child.EXPORT, exporter, lambda factory, into: Exported(path, says=says))
    return child.main(f"side_by_side_models:{target}", exporter, folder)


@pytest.mark.parametrize(
    ("target", "written", "says", "verdict", "reason"),
    [
        ("double", DOUBLE, "passed", "right", ""),
        ("double", DOUBLE, "failed", "false alarm", ""),
        ("double", SQUARE, "passed", "verified but wrong", "example (n=4): output 0: 12 of 12 of the values differ"),
        ("double", NEGATED, "failed", "wrong", "example (n=4): output 0: 12 of 12 of the values differ"),
        ("double", FIXED, "passed", "verified but wrong", "n alone (n=5): ONNX Runtime fails: InvalidArgument"),
        ("double", UNKNOWN, "passed", "verified but wrong", "example (n=4): ONNX Runtime does not load the model: "),
        ("automatic", FIXED, "passed", "right", ""),
        ("random", DOUBLE, "passed", "right", ""),
        ("random", model(("Unsqueeze", ["x", "x"])), "passed", "verified but wrong", "does not load"),
        ("counter", DOUBLE, "passed", "verified but wrong", "example (): output 0: "),
        ("fails", DOUBLE, "passed", "not comparable", "ValueError: this module never runs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_verdict(target, written, says, verdict, reason, tmp_path, monkeypatch):
    row = judged(target, written, tmp_path, monkeypatch, says=says)
    assert (row.verdict, row.says) == (verdict, says if verdict != "not comparable" else "")
    assert reason in row.reason


def test_what_torch_writes_wrong_is_wrong(tmp_path, monkeypatch):
    assert judged("double", SQUARE, tmp_path, monkeypatch, exporter="torch", says="").verdict == "wrong"


@pytest.mark.parametrize(
    ("target", "verdict", "reason"),
    [
        ("double", "right", ""),
        ("derived", "right", ""),
        ("automatic", "right", ""),
        ("branches", "refused", "GuardOnDataDependentSymNode: "),
    ],
)
def test_a_capture_alone(target, verdict, reason, tmp_path):
    row = child.main(f"side_by_side_models:{target}", "capture", tmp_path)
    assert row.verdict == verdict, row
    assert row.reason.startswith(reason)


def test_refusals_and_tracebacks(tmp_path, monkeypatch):
    def refuse(factory, into):
        raise child.RefusedError("it can't be done:\nbecause", "do something else.")

    monkeypatch.setitem(child.EXPORT, "opbridge", refuse)
    row = child.main("side_by_side_models:double", "opbridge", tmp_path)
    assert (row.verdict, row.reason, row.fix) == ("refused", "it can't be done:", "do something else.")
    monkeypatch.setitem(child.EXPORT, "opbridge", lambda factory, into: 1 // 0)
    row = child.main("side_by_side_models:double", "opbridge", tmp_path)
    assert (row.verdict, row.reason) == ("crash", "traceback: ZeroDivisionError: integer division or modulo by zero")


def test_state_is_carried_from_call_to_call(tmp_path, monkeypatch):
    nodes = [
        helper.make_node("ReduceSum", ["x", "axis"], ["sum"], keepdims=0),
        helper.make_node("Add", ["count", "sum"], ["new_count"]),
        helper.make_node("Add", ["x", "new_count"], ["y"]),
    ]
    axis = helper.make_tensor("axis", onnx.TensorProto.INT64, [1], [0])
    inputs = {"x": ("FLOAT", [4, 3]), "count": ("FLOAT", [3])}
    written = make_model(nodes, inputs, {"y": ("FLOAT", [4, 3]), "new_count": ("FLOAT", [3])}, initializers=[axis])
    assert judged("counter", written, tmp_path, monkeypatch).verdict == "right"


@pytest.mark.parametrize(
    ("target", "sizes"),
    [
        ("double", [{"n": 4}, {"n": 5}, {"n": 3}]),
        ("bounded", [{"n": 4}, {"n": 5}]),
        ("only_four", [{"x.0": 4}, {}]),
        ("automatic", [{"x.0": 4, "x.1": 3}, {"x.0": 5, "x.1": 3}, {"x.0": 3, "x.1": 3}, {}]),
    ],
)
def test_sizes(target, sizes, tmp_path, monkeypatch):
    row = judged(target, DOUBLE, tmp_path, monkeypatch)
    assert [item.sizes for item in row.comparisons] == sizes


def test_a_derived_size_follows_its_root(tmp_path, monkeypatch):
    row = judged("derived", DOUBLE, tmp_path, monkeypatch)
    assert [item.sizes for item in row.comparisons] == [{"half": 2}, {"half": 3}]
    assert row.comparisons[1].detail == "output 0: shape (6, 3), where eager PyTorch has (2, 3, 3)"


def test_a_size_that_is_random_is_free():
    runs = [[torch.zeros(3, 2)], [torch.zeros(5, 2)]]
    assert not shape_difference(runs, [torch.zeros(9, 2)])
    assert shape_difference(runs, [torch.zeros(3, 3)]) == "output 0: shape (3, 3), where eager PyTorch has (3, 2)"
    assert shape_difference(runs[:1], [torch.zeros(9, 2)])
    assert shape_difference(runs, [torch.zeros(3)])


HALF = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float16)


@pytest.mark.parametrize(
    ("own", "wide", "found", "text"),
    [
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0001], ""),
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.001], "1 of 2 of the values differ, at worst 2.001 for 2"),
        ([1.0, 2.01], [1.0, 2.0], [1.0, 2.05], ""),
        ([1.0, float("nan")], [1.0, 2.0], [1.0, float("nan")], ""),
        ([1.0, 2.0], [1.0, 2.0], [1.0, float("nan")], "NaN or infinite at other places: 1 of 2"),
        ([1.0, float("inf")], [1.0, float("inf")], [1.0, 3e38], "NaN or infinite at other places: 1 of 2"),
        ([1, 2], [1, 2], [1, 3], "1 of 2 of the integers or booleans differ"),
        ([1, 2], [1, 4], [1, 3], ""),
        ([1, 2, 3], [1, 4, 3], [1, 2, 5], ""),
        ([1, 2, 3], [1, 4, 3], [6, 2, 5], "2 of 3 of the integers or booleans differ"),
        ([1, 2], [1, 2], [[1, 2]], "shape (1, 2), where eager PyTorch has (2,)"),
        ([1, 2], [1, 2], [1.0, 2.0], "dtype float32, where eager PyTorch has int64"),
        ([1 + 2j], [1 + 2j], [[1.0, 2.0]], ""),
        ([True], [True], [False], "1 of 1 of the integers or booleans differ"),
        ([], [], [], ""),
    ],
)
def test_equal(own, wide, found, text):
    expected = torch.tensor(own)
    reference = torch.tensor(wide, dtype=torch.float64 if expected.is_floating_point() else None)
    told = difference([expected], [reference], [torch.tensor(found)])
    assert (text in told) if text else not told


def test_half_types_and_stated_tolerances():
    assert not difference([HALF], [HALF.double()], [HALF * 1.002])
    assert difference([HALF], [HALF.double()], [HALF * 1.02])
    assert not difference([HALF], [HALF.double()], [HALF * 1.02], tolerance=0.1)
    assert difference([HALF], None, [HALF, HALF]) == "2 outputs, where eager PyTorch has 1"


def test_the_tables():
    rows = [
        Row("a", "opbridge", "right"),
        Row("a", "torch", "wrong", "x | y"),
        Row("b", "opbridge", "refused", "no", "do it."),
    ]
    text = to_markdown(rows, {"a": "https://example.org/1"})
    assert "| right | 1 | 0 |" in text
    assert "| all | 2 | 1 |" in text
    assert "| [a](https://example.org/1) | right | wrong |" in text
    assert "| b | refused | no | do it. |" in text
    assert "| a | wrong | x \\| y |" in text
    assert Row.from_dict(rows[2].to_dict()) == rows[2]
    assert "torch.export" not in text.replace("torch.onnx.export", "")
    captured = [Row(name, "capture", "right") for name in ("a", "b")]
    assert "captures 2 of these models" in to_markdown([*rows, *captured])
    assert "opbridge is right for 1 of them (50.0%)" in to_markdown([*rows, *captured])


def test_the_time_limit():
    row = compare("side_by_side_models:hangs", "torch", seconds=0.2)
    assert (row.verdict, row.reason) == ("time limit", "while starting")


@pytest.mark.quick(every=6)
@pytest.mark.parametrize(
    ("target", "exporter", "verdict", "reason"),
    [
        ("aborts", "torch", "crash", "SIGABRT while making the model"),
        ("double", "opbridge", "right", ""),
        ("double", "torch", "right", ""),
        ("derived", "opbridge", "right", ""),
        ("branches", "opbridge", "refused", "can't be converted"),
        ("branches", "torch", "refused", ""),
    ],
)
def test_in_a_child_process(target, exporter, verdict, reason):
    row = compare(f"side_by_side_models:{target}", exporter)
    assert row.verdict == verdict, row
    assert reason in row.reason
