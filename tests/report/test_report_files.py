"""``opbridge report``: the page, Markdown and JUnit XML in files, and the page that export and verify write."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import report_bundles as made

from opbridge.bundle.bundle import read_bundle
from opbridge.bundle.write import write_bundle
from opbridge.cli import main
from opbridge.errors import InputError
from opbridge.proof.verify.verification import CaseResult, Verification
from opbridge.report.junit import render_junit
from opbridge.report.markdown import render_markdown
from opbridge.report.page import render_page
from opbridge.report.written import write_report

pytestmark = pytest.mark.newest

THREE = ("onnxruntime", "openvino", "tensorrt_rtx")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    described = {key: value for key, value in made.manifest().items() if key not in ("opbridge", "files", "sha256")}
    write_bundle(
        tmp_path / "b",
        described,
        made.write_files,
        sources=made.sources(),
        verification=lambda _: made.failed().to_dict(),
        page=render_page,
    )
    return tmp_path / "b"


def test_a_bundle_is_written_with_its_page(bundle: Path) -> None:
    text = (bundle / "report.html").read_text()
    assert '<h1 id="verdict">Does not match PyTorch</h1>' in text
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", text)
    assert "report.html" not in read_bundle(bundle).manifest["files"]
    # The page is the bundle's own: it does not keep the bundle from being replaced.
    described = {key: value for key, value in made.manifest().items() if key not in ("opbridge", "files", "sha256")}
    write_bundle(bundle, described, lambda folder: made.write_files(folder, b"2"), overwrite=True)
    assert not (bundle / "report.html").exists()


def test_the_page_is_made_again_of_the_files_alone(bundle: Path, capsys: Any) -> None:
    (bundle / "report.html").unlink()
    assert main(["report", str(bundle), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "report": str(bundle / "report.html"),
        "format": "html",
        "verified": False,
        "claim": False,
    }
    assert (bundle / "report.html").read_text() == render_page(read_bundle(bundle).to_dict())


@pytest.mark.parametrize("form", ["html", "markdown", "junit"])
def test_a_report_in_a_file(bundle: Path, tmp_path: Path, form: str, capsys: Any) -> None:
    file = tmp_path / "out.txt"
    assert main(["report", str(bundle), "--format", form, "-o", str(file)]) == 0
    assert capsys.readouterr().out == f"report: {file}\n"
    starts = {"html": "<!doctype html>", "markdown": "## ❌ Does not match PyTorch", "junit": "<?xml version"}
    assert file.read_text().startswith(starts[form])
    assert sorted(os.listdir(tmp_path)) == ["b", "out.txt"]


def test_what_cannot_be_written_leaves_nothing_and_says_so(bundle: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["report", str(bundle), "--format", "junit"]) == 1
    assert "fix: name it with -o FILE." in capsys.readouterr().err
    assert main(["report", str(bundle), "-o", str(tmp_path / "no" / "x.html")]) == 1
    assert "can't be written" in capsys.readouterr().err
    (bundle / "verification.json").write_text('{"verdict": "failed", "cases": [1]}')
    with pytest.raises(InputError, match="was not written by opbridge, or was changed") as caught:
        write_report(read_bundle(bundle), "junit", tmp_path / "x.xml")
    assert "verify the bundle again" in caught.value.fix
    assert sorted(os.listdir(tmp_path)) == ["b"]


def test_a_report_needs_neither_torch_nor_onnx(bundle: Path) -> None:
    code = (
        "import sys\nfrom opbridge.bundle.bundle import read_bundle\n"
        "from opbridge.report.written import FORMATS, render\n"
        "import opbridge.report.server\n"
        f"for form in FORMATS: assert render(read_bundle({str(bundle)!r}), form)\n"
        "heavy = {'torch', 'onnx', 'onnx_ir', 'onnxruntime', 'netron'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_junit_has_a_suite_per_engine_and_a_test_per_case_and_output() -> None:
    root = ET.fromstring(render_junit(made.bundle(made.several(), THREE)))
    assert root.tag == "testsuites"
    assert [suite.get("name") for suite in root] == ["onnxruntime with kernels", "openvino", "tensorrt_rtx"]
    first, _, idle = root
    # Three outputs and the captured graph, on three sets of inputs.
    assert (first.get("tests"), first.get("failures"), first.get("errors"), first.get("skipped")) == (
        "12",
        "0",
        "0",
        "0",
    )
    assert first[0].get("name") == "example sizes (batch=2): captured graph"
    assert first[1].attrib == {
        "classname": "detector.py:model.onnxruntime with kernels",
        "name": "example sizes (batch=2): logits",
    }
    assert "pass: max error 14.2" in first[1].findtext("system-out")
    assert (idle.get("tests"), idle.get("skipped")) == ("1", "1")
    assert "no GPU" in idle.find("testcase/skipped").get("message")
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("25", "0", "1")


def test_junit_tells_failures_from_errors() -> None:
    root = ET.fromstring(render_junit(made.bundle(made.failed())))
    (failure,) = root.iter("failure")
    assert failure.get("message") == "off by 5.21e+03 units where 109 are allowed"
    assert "tolerance 109 units" in failure.text
    assert (root.get("failures"), root.get("errors")) == ("1", "0")
    broken = CaseResult("sizes 2", {}, "error", False, error="the engine crashed")
    crashed = Verification("onnxruntime", "error", (broken,), (), {}, 1, error="the engine crashed")
    root = ET.fromstring(render_junit(made.bundle(crashed)))
    assert [error.get("message") for error in root.iter("error")] == ["the engine crashed"]
    assert [item.get("type") for item in root.iter("failure")] == ["capture"]
    root = ET.fromstring(render_junit(made.bundle(None)))
    assert (root.get("tests"), root.get("skipped")) == ("1", "1")


def test_junit_holds_any_name() -> None:
    data = made.hostile()
    data["verification"]["comparisons"][0]["output"] = "bell \x07 and \ud800 half"
    root = ET.fromstring(render_junit(data).encode("utf-8", "replace"))
    names = [test.get("name") for test in root.iter("testcase")]
    assert any("<script>" in name for name in names)
    assert any("bell � and" in name for name in names)


def test_markdown_says_what_the_page_says() -> None:
    text = render_markdown(made.bundle(made.failed()))
    assert "### First mismatching node" in text
    row = "| node\\_Softmax\\_34 | ai.onnx::Softmax | aten::softmax.int | model.py:14 |"
    assert f"| sizes 2 | first mismatching node {row}" in text
    assert "| logits | sizes 2 | ❌ mismatch | 47.9 times | 5,210 | 9.1 | 109 |" in text
    assert "6 operators, 2 with a custom mapping or kernel." in text
    assert "| aten::cummax | kernel | catalog | 8 | model.py:12 (+1) |" in text
    assert "wrong-mapping" not in text, "opbridge has fixed it"
    data = made.bundle(made.failed())
    open_finding = {**data["sources"]["findings"][1], "mended": False}
    text = render_markdown({**data, "sources": {**data["sources"], "findings": [open_finding]}})
    assert "- **warning wrong-mapping**: opbridge maps aten::softmax.int itself" in text
    assert "torch 2.15.0" in text
    assert "✅ passed | 3 of 3 |" in render_markdown(made.bundle(made.several(), THREE))
    rows = dataclasses.replace(made.passed(), comparisons=made.passed().comparisons * 20)
    assert "and 130 more with smaller errors" in render_markdown(made.bundle(rows))


def test_markdown_keeps_names_text_and_tables_whole() -> None:
    data = made.hostile()
    data["verification"]["comparisons"][0]["output"] = "a|b\n# c `d` [e](f)"
    data["manifest"]["entry"] = "\u202egnp.py\u2066:\x1b[31mm"
    text = render_markdown(data)
    assert "<script" not in text
    assert not set("\u202e\u2066\x1b") & set(text + render_page(data))
    assert "| a\\|b \\# c \\`d\\` \\[e\\](f) |" in text
