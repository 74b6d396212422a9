"""The page of conformance results, opened in a browser: searched, filtered, its cells opened, on a phone too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opbridge.proof.conformance.results import Result, Way
from opbridge.report.conformance_page import write_page

pytestmark = [pytest.mark.newest, pytest.mark.slow]

COLUMNS = ["opbridge · onnxruntime · float32", "torch.onnx · onnxruntime · float32"]


def result(entry: str, status: str, exporter: str, error: str = "") -> Result:
    return Result(
        entry=entry,
        dtype="float32",
        way=Way(exporter),
        status=status,
        error=error,
        sample="(f32[2])" if error else "",
        counts={status: 3},
        rungs={"aten::sort": "translate"} if exporter == "opbridge" else {},
        seconds={"export": 1.234},
        versions={"torch": "2.15.0"},
        date="2026-11-22" if error else "2026-11-23",
    )


RESULTS = [
    result("sort", "pass", "opbridge"),
    result("sort", "mismatch", "torch", "output_0: differs <at> [1]"),
    result("svd", "pass", "opbridge"),
    result("svd", "translate", "torch", "aten::_linalg_svd has no mapping"),
    result("zeta", "pass", "opbridge"),
    result("linalg.qr", "translate", "torch", "aten::linalg_qr has no mapping"),
    result("linalg.qr", "pass", "opbridge"),
]


@pytest.fixture
def site(page: Any, tmp_path: Path) -> Any:
    file = tmp_path / "results.jsonl"
    file.write_text("\n".join(json.dumps(found.to_dict()) for found in RESULTS))
    page.goto(Path(write_page([file], tmp_path / "site").page).as_uri())
    return page


def entries(site: Any) -> list[str]:
    return list(site.locator("#rows th").all_inner_texts())


def test_it_shows_the_matrix(site: Any) -> None:
    assert entries(site) == ["linalg.qr", "sort", "svd", "zeta"]
    heads = site.locator("#columns th").all_inner_texts()
    assert heads[0] == "operator"
    assert [head.splitlines() for head in heads[1:]] == [[COLUMNS[0], "4 of 4"], [COLUMNS[1], "0 of 3"]]
    assert site.locator("#rows tr").nth(3).locator("td").all_inner_texts() == ["pass", "–"]
    assert site.locator("#shown").inner_text() == "4 of 4"
    assert "torch 2.15.0" in site.locator("header p").inner_text()


def test_totals_families_and_dates(site: Any) -> None:
    totals = [row.split("\t") for row in site.locator("#totals tr").all_inner_texts()]
    assert [[cell.strip() for cell in row] for row in totals] == [
        [COLUMNS[0], "4 of 4", "none", "2026-11-23"],
        [COLUMNS[1], "0 of 3", "2 not translated, 1 mismatch", "2026-11-22"],
    ]
    families = [row.split("\t") for row in site.locator("#families tr").all_inner_texts()]
    assert [[cell.strip() for cell in row] for row in families] == [
        ["linalg", "1 of 1", "0 of 1"],
        ["torch", "3 of 3", "0 of 2"],
    ]
    picture = site.locator("#totals .bar").nth(1)
    assert picture.get_attribute("aria-label") == "2 not translated, 1 mismatch"
    widths = [part.bounding_box()["width"] for part in picture.locator("i").all()]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.1)


def test_opbridge_is_compared_with_torch_onnx(site: Any) -> None:
    assert site.locator("#comparisons").inner_text() == (
        "Compared with torch.onnx, onnxruntime · float32, 3 operators: "
        "0 pass with both, 3 pass with opbridge only, 0 pass with torch.onnx only, 0 pass with neither"
    )
    site.get_by_role("button", name="3 pass with opbridge only").click()
    assert entries(site) == ["linalg.qr", "sort", "svd"]
    site.get_by_role("button", name="0 pass with both").click()
    assert entries(site) == []


def test_the_search_finds_operators_and_reasons(site: Any) -> None:
    site.fill("#search", "SV")
    assert entries(site) == ["svd"]
    site.fill("#search", "differs [1]")
    assert entries(site) == ["sort"]
    site.fill("#search", "nothing like this")
    assert entries(site) == []
    assert site.locator("#shown").inner_text() == "0 of 4"
    site.fill("#search", "")
    site.select_option("#status", "mismatch")
    assert entries(site) == ["sort"]


def test_a_cell_opens_its_reason_and_closes_it(site: Any) -> None:
    cell = site.get_by_role("button", name="mismatch")
    cell.click()
    shown = site.locator("tr.reason dd").all_inner_texts()
    assert shown[:3] == [COLUMNS[1], "mismatch", "output_0: differs <at> [1]"]
    site.locator("#rows tr").nth(1).get_by_role("button", name="pass").click()
    assert "aten::sort: translate" in site.locator("tr.reason dd").all_inner_texts()
    assert site.locator("tr.reason").count() == 1
    site.locator("#rows tr").nth(1).get_by_role("button", name="pass").click()
    assert site.locator("tr.reason").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_on_a_phone(site: Any, scheme: str) -> None:
    site.set_viewport_size({"width": 360, "height": 700})
    site.emulate_media(color_scheme=scheme)
    # The table scrolls in its frame: the page itself is never wider than the screen.
    assert site.evaluate("document.documentElement.scrollWidth") <= 360
    assert site.locator("#search").bounding_box()["width"] >= 200
    site.get_by_role("button", name="translate").first.click()
    back, front = site.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    luminance = [sum(map(int, color[4:-1].split(","))) for color in (back, front)]
    assert (luminance[0] < luminance[1]) == (scheme == "dark")
    assert abs(luminance[0] - luminance[1]) > 500
