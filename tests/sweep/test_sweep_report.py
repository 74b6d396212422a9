"""The report of a sweep, its page in a browser, and the comparison of two sweeps."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from opbridge.cli import main
from opbridge.errors import InputError
from opbridge.sweep.diff import compare_sweeps
from opbridge.sweep.report import causes_of, write_report
from opbridge.sweep.rows import Row, RowFile

pytestmark = pytest.mark.newest


def row(model: str, status: str = "pass", exporter: str = "opbridge", **fields: Any) -> Row:
    own = {"seconds": {"export": 2.5}, "versions": {"torch": "2.14.1"}, "memory": 900_000_000, "weights": 40_000_000}
    return Row("zoo", model, exporter, "onnxruntime", status, **{**own, "date": "2026-11-23T10:00:00", **fields})


ROWS = [
    row("a", run_seconds=0.004, tolerance_used=0.1),
    row("a", exporter="torch", run_seconds=0.008),
    row("b", "translate", causes=("no mapping of aten::x", "no mapping of aten::y"), error="aten::x <b> and aten::y"),
    row("c", "translate", causes=("no mapping of aten::x",), error="aten::x"),
    row("c", "crashed", exporter="torch", causes=("SIGSEGV while exporting",), signal="SIGSEGV", log="Fatal error"),
    row("d", "eager", causes=("ValueError: no",)),
]


def written(folder: Path, rows: list[Row]) -> Path:
    with RowFile(folder).opened() as file:
        for one in rows:
            file.append(one)
    return folder


def test_causes_are_grouped_with_most_models_first() -> None:
    found = causes_of(ROWS)
    assert [(cause.cause, cause.models, cause.alone) for cause in found] == [
        ("no mapping of aten::x", ("zoo/b", "zoo/c"), 1),
        ("no mapping of aten::y", ("zoo/b",), 0),
        ("SIGSEGV while exporting", ("zoo/c",), 1),
    ]
    assert found[2].run == "torch.onnx on onnxruntime"


def test_the_table_for_analysis(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(write_report(written(tmp_path, ROWS), table=tmp_path / "rows.parquet").table)
    assert table.num_rows == len(ROWS)
    assert table.column("seconds_export").to_pylist() == [2.5] * len(ROWS)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There are no results"):
        write_report(tmp_path)
    with pytest.raises(InputError, match="There are no results"):
        write_report(written(tmp_path, []))


@pytest.mark.slow
def test_the_page_in_a_browser(page: Any, tmp_path: Path) -> None:
    report = write_report(written(tmp_path, ROWS))
    page.goto(Path(report.page).as_uri())
    assert "zoo, opbridge on onnxruntime: 1 of 3 pass, and 1 not counted." in page.locator("main").inner_text()
    assert page.locator("#causes tbody th").all_inner_texts()[0] == "no mapping of aten::x"
    assert page.locator("#causes tbody tr").count() == 3
    assert page.locator("#models tbody th").all_inner_texts() == ["zoo/a", "zoo/b", "zoo/c", "zoo/d"]
    assert page.locator("#numbers circle").count() == 3, "one run of both exporters, and the memory of each"
    assert "0 only with opbridge, 0 only with torch.onnx" in page.locator("#totals").inner_text()
    page.locator("#models button.node", has_text="zoo/c").click()
    assert "Fatal error" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.locator("#models input").fill("crashed")
    assert page.locator("#models tbody th").all_inner_texts() == ["zoo/c"]
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


OLD = [
    row("a", run_seconds=0.004, tolerance_used=0.1),
    row("b"),
    row("c", "capture", causes=("a loop",)),
    row("d", "capture", causes=("a loop",)),
    row("e", run_seconds=0.00001),
    row("f", tolerance_used=0.3),
    row("g"),
]
NEW = [
    row("a", run_seconds=0.008, tolerance_used=0.15),
    row("b", "mismatch", causes=("first mismatching node: ai.onnx::Add",)),
    row("c"),
    row("d", "translate", causes=("no mapping of aten::x",)),
    row("e", run_seconds=0.0001),
    row("f", tolerance_used=0.9),
    row("h", versions={"torch": "2.15.0"}),
]


def test_two_sweeps_are_compared(tmp_path: Path) -> None:
    found = compare_sweeps(written(tmp_path / "old", OLD), written(tmp_path / "new", NEW))
    assert [(change.model[4], change.kind, change.before, change.after) for change in found.changes] == [
        ("b", "broken", "pass", "mismatch: first mismatching node: ai.onnx::Add"),
        ("a", "slower", "4 ms a run", "8 ms a run"),
        ("f", "less accurate", "30% of the tolerance", "90% of the tolerance"),
        ("d", "other cause", "capture: a loop", "translate: no mapping of aten::x"),
        ("c", "fixed", "capture: a loop", "pass"),
        ("g", "missing", "pass", "no row"),
        ("h", "new", "no row", "pass"),
    ]
    assert found.versions == ("torch 2.14.1 -> 2.15.0",)


def test_the_command_ends_with_1_after_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = (str(written(tmp_path / name, rows)) for name, rows in (("old", OLD), ("new", NEW)))
    assert main(["sweep", "diff", old, new, "--junit", str(tmp_path / "diff.xml")]) == 1
    assert "3 regressions among 6 models" in capsys.readouterr().out
    root = ET.parse(tmp_path / "diff.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("8", "3", "2")
    (failure, *_) = root.findall(".//failure")
    assert failure.get("message") == "slower: 4 ms a run -> 8 ms a run"
    assert main(["sweep", "diff", old, old, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report"], "takes one folder"),
        (["diff", "a"], "takes two folders"),
        (["report", "nowhere"], "no results in 'nowhere'"),
    ],
)
def test_wrong_words_are_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *words]) == 1
    assert message in capsys.readouterr().err
