"""The report page, opened in a browser from its file: verdicts, plots, tables, nodes, hostile names, big models."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import report_bundles as made

from opbridge.engines.process.crash import Crash
from opbridge.proof.verify.joined import joined
from opbridge.proof.verify.special_values import SpecialDifference, SpecialValues
from opbridge.proof.verify.trace import Trace
from opbridge.proof.verify.verification import CaseResult, Verification
from opbridge.report.page import render_page
from opbridge.report.page_words import summarise, times

pytestmark = [pytest.mark.newest, pytest.mark.slow]

THREE = ("onnxruntime", "openvino", "tensorrt_rtx")


@pytest.fixture
def opened(page: Any, tmp_path: Path) -> Any:
    """Opens the report of a bundle's data; what it logs, or asks the network for, fails the test."""
    logged: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: logged.append(message.text))
    page.on("request", lambda request: asked.append(request.url))

    def open_page(data: dict[str, Any], *, scheme: str = "light", width: int = 1200) -> Any:
        file = tmp_path / "report.html"
        file.write_text(render_page(data), encoding="utf-8", errors="replace")
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(file.as_uri())
        return page

    yield open_page
    assert logged == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def column(page: Any, section: str, number: int) -> list[str]:
    return list(page.locator(f"#{section} tbody tr > :nth-child({number})").all_inner_texts())


def targets(page: Any) -> list[str]:
    """The operators; a note may stand below each."""
    return [text.partition("\n")[0] for text in column(page, "operators", 1)]


def heads(page: Any, section: str) -> list[str]:
    return list(page.locator(f"#{section} thead th").all_inner_texts())


def test_a_passed_bundle(opened: Any) -> None:
    page = opened(made.bundle(made.passed()))
    assert page.locator("h1").inner_text() == "Matches PyTorch"
    sentences = " ".join(page.locator(".verdict p").all_inner_texts())
    assert (
        "detector.py:model was exported for onnxruntime 1.31.1. 2 operators needed a custom mapping or kernel."
        in sentences
    )
    assert "All outputs match PyTorch on 3 sets of inputs." in sentences
    assert "The largest error, in output logits, is 13% of the tolerance." in sentences
    assert page.locator("h1, h2").all_inner_texts() == [
        *("Matches PyTorch", "Error by depth", "Outputs", "Operators", "Graph", "Time", "Findings"),
        *("Changes made for an engine", "Inputs", "The bundle"),
    ]
    assert page.locator("nav a").count() == 9
    assert "float16 is computed in float32" in page.locator("#changes").inner_text()
    assert "fixed by a kernel" in page.locator("#findings").inner_text()
    assert "nothing to do" not in page.locator("#findings").inner_text()
    assert "2.15.0" in page.locator("#bundle").inner_text()
    assert column(page, "cases", 2) == ["batch=2", "batch=7", "batch=1"]


def test_the_operators_have_their_links_and_are_sorted_and_filtered(opened: Any) -> None:
    page = opened(made.bundle(made.passed()))
    assert [re.sub(r"\W", "", name) for name in heads(page, "operators")][:6] == [
        *("operator", "rung", "uses", "1torch", "2mapping", "3kernel"),
    ]
    assert targets(page) == list(made.TARGETS)
    row = page.locator("#operators tbody tr").nth(5)
    assert [text.replace("✓", "").strip() for text in row.locator("td").all_inner_texts()][:5] == [
        *("kernel", "8", "captured", "custom node", "compiled kernel"),
    ]
    uses = page.locator("#operators thead").get_by_role("button", name="uses")
    uses.click()
    assert column(page, "operators", 3) == ["8", "7", "6", "5", "4", "3"]
    assert page.locator("#operators thead th").nth(2).get_attribute("aria-sort") == "descending"
    uses.press("Enter")
    assert column(page, "operators", 3) == ["3", "4", "5", "6", "7", "8"]
    page.locator("#operators input").fill("softmax translate")
    assert targets(page) == ["aten::softmax.int"]
    assert page.locator("#operators .count").inner_text() == "1 of 6"


def test_a_failed_bundle_names_the_node_and_marks_it_in_the_plot(opened: Any) -> None:
    page = opened(made.bundle(made.failed()))
    assert page.locator("h1").inner_text() == "Does not match PyTorch"
    sentences = " ".join(page.locator(".verdict p").all_inner_texts())
    assert "onnxruntime does not match PyTorch on 1 of 3 sets of inputs." in sentences
    assert "The error of output logits is 47.9 times the tolerance." in sentences
    assert "node_Softmax_34 (ai.onnx::Softmax, from aten::softmax.int at model.py:14)" in sentences
    assert "node_Softmax_34" in page.locator("#divergences").inner_text()
    # The run that diverges is the one that is shown first, with its node picked.
    assert page.locator("#depth select").evaluate("(choice) => choice.selectedOptions[0].text") == "sizes 2"
    plot = page.locator("#depth svg.plot")
    assert plot.locator("[data-part=divergence]").count() == 1
    assert plot.locator("text", has_text="first mismatch").is_visible()
    assert plot.locator("[data-part=over]").get_attribute("d").count("z") == 60 - 34
    assert "node_Softmax_34" in page.locator("#depth .detail").inner_text()
    assert "26 above the tolerance" in plot.get_attribute("aria-label")
    assert column(page, "outputs", 3)[0] == "✕ mismatch"


def test_the_plot_has_the_budget_both_errors_and_every_point_says_what_it_is(opened: Any) -> None:
    page = opened(made.bundle(made.passed()))
    plot = page.locator("#depth svg.plot")
    budget = plot.locator("[data-part=budget]")
    assert budget.get_attribute("d").count("L") == 59
    assert plot.locator("text", has_text="tolerance").is_visible()
    assert plot.locator("[data-part=engine]").get_attribute("d").count("M") == 60
    assert plot.locator("[data-part=torch]").get_attribute("d").count("M") == 60
    assert plot.locator("[data-part=divergence], [data-part=over]").count() == 0
    # On a logarithmic scale the budget, tens of units, lies above errors of a few units.
    box = budget.bounding_box()
    errors = plot.locator("[data-part=torch]").bounding_box()
    assert box["y"] + box["height"] < errors["y"] + errors["height"] / 2
    frame = plot.bounding_box()
    plot.hover(position={"x": frame["width"] - 14, "y": frame["height"] / 2})
    detail = page.locator("#depth .detail")
    assert "node_Softmax_59" in detail.inner_text()
    for text in ("ai.onnx::Softmax", "aten::softmax.int", "fx_59", "model.py:17", "units"):
        assert text in detail.inner_text()
    plot.press("ArrowLeft")
    assert "node_Gemm_58" in detail.inner_text()
    plot.press("Home")
    assert "node_Conv_0" in detail.inner_text()


def test_a_node_opens_and_closes(opened: Any, tmp_path: Path) -> None:
    page = opened(made.bundle(made.failed()))
    page.locator("#divergences").get_by_role("button", name="node_Softmax_34").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("heading", name="node_Softmax_34").is_visible()
    assert "example sizes" in dialog.inner_text()
    assert "sizes 2" in dialog.inner_text()
    assert f"opbridge view {tmp_path}\n" in f"{dialog.inner_text()}\n"
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.locator("#bundle summary").click()
    page.locator("#bundle input").fill("Gemm_58")
    page.locator("#bundle").get_by_role("button", name="node_Gemm_58").click()
    assert dialog.get_by_role("heading", name="node_Gemm_58").is_visible()


def test_the_graph_is_drawn_and_its_nodes_open(opened: Any) -> None:
    page = opened(made.bundle(made.passed()))
    boxes = page.locator("#graph .box")
    assert boxes.locator("text").all_text_contents() == ["image", "Conv", "Relu", "mylib::cummax", "logits"]
    for box in boxes.all():
        frame, text = box.locator("rect").bounding_box(), box.locator("text").bounding_box()
        assert frame["x"] <= text["x"]
        assert text["x"] + text["width"] <= frame["x"] + frame["width"]
    boxes.nth(1).click()
    assert page.locator("dialog h2").inner_text() == "node_Conv_0"
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    without = made.bundle(made.passed())
    page = opened({**without, "sources": {**without["sources"], "graph": []}})
    assert page.locator("#graph").count() == 0


def test_histograms_of_the_outputs_closest_to_the_limit(opened: Any) -> None:
    page = opened(made.bundle(made.failed()))
    cards = page.locator("#outputs .card")
    assert cards.locator("h3").all_inner_texts() == ["logits", "boxes"]
    first = cards.nth(0)
    assert first.locator("rect.bar").count() == 12
    assert first.locator("rect.bartorch").count() == 12
    assert first.locator("path.budget").count() == 1
    assert "engine: " in first.locator("rect.bar title").nth(7).text_content()


def test_times_are_summed_by_operator_beside_pytorchs(opened: Any) -> None:
    page = opened(made.bundle(made.passed()))
    table = page.locator("#times tbody").first
    first = table.locator("tr").first
    assert first.locator("th").inner_text() == "aten::softmax.int"
    assert first.locator("td").all_inner_texts()[0] == "12"
    assert first.locator("td").all_inner_texts()[1] == "6 ms"
    assert [text.strip() for text in first.locator("td").all_inner_texts()[3:]] == ["520 µs", "11.5 ×"]
    page.locator("#times summary").click()
    assert page.locator("#times").get_by_role("button", name="node_Conv_55").is_visible()


def test_several_engines_are_kept_apart_and_what_did_not_run_says_why(opened: Any) -> None:
    page = opened(made.bundle(made.several(), THREE))
    assert page.locator("h1").inner_text() == "Matches PyTorch on the engines that ran"
    assert "All outputs of both engines match PyTorch on 3 sets of inputs." in page.locator(".verdict").inner_text()
    assert column(page, "engines", 2) == ["✓ passed", "✓ passed", "○ built, not run"]
    assert "no GPU to run it" in page.locator("#not-run").inner_text()
    assert page.locator("#depth option").all_inner_texts() == [
        "onnxruntime with kernels, example sizes",
        "openvino, example sizes",
    ]
    page.select_option("#depth select", "1")
    assert page.locator("#depth svg.plot").get_attribute("aria-label").startswith("openvino, example sizes")
    assert set(column(page, "outputs", 2)) == {"onnxruntime with kernels", "openvino"}


def test_a_bundle_that_was_not_run_or_never_verified(opened: Any) -> None:
    page = opened(made.bundle(made.not_run(), ("tensorrt_rtx",)))
    assert page.locator("h1").inner_text() == "Not run"
    assert page.locator("#depth, #outputs, #times").count() == 0
    page = opened(made.bundle(None))
    assert page.locator("h1").inner_text() == "Not verified"
    assert page.locator("#operators tbody tr").count() == 6


def test_crashes_and_special_values_are_told(opened: Any) -> None:
    crash = Crash(
        "sizes 2", "crashed", "onnxruntime crashed.", "SIGSEGV", "last <words>", "node_Conv_5", "ai.onnx::Conv"
    )
    special = SpecialValues("NaN", "differs", (SpecialDifference("logits", "NaN", "0", 3, 20, (1, 2)),))
    failed = Verification(
        "onnxruntime",
        "error",
        (CaseResult("sizes 2", {}, "error", error="onnxruntime crashed."),),
        (),
        {"runs": 1.0},
        1,
        error="onnxruntime crashed.",
        crashes=(crash,),
        special_values=(special,),
    )
    page = opened(made.bundle(failed))
    assert page.locator("h1").inner_text() == "Not verified: the engine failed"
    card = page.locator("#crashes")
    assert "crashed (SIGSEGV)" in card.inner_text()
    card.locator("summary").click()
    assert card.locator("pre").inner_text() == "last <words>"
    assert card.get_by_role("button", name="node_Conv_5").is_visible()
    assert "logits: 0 where PyTorch has NaN, in 3 of 20 elements" in page.locator("#special").inner_text()


def test_names_that_are_markup_stay_text(opened: Any) -> None:
    data = made.hostile()
    page = opened(data)
    assert page.title().startswith("Does not match")
    assert page.locator("main img").count() == 0
    assert page.locator("script").count() == 2
    page.locator("#divergences button.node").first.click()
    assert page.get_by_role("dialog").get_by_role("heading").first.inner_text().startswith("</script>")
    assert targets(page)[-1].startswith("</script>")


def test_numbers_that_are_not_finite_have_a_lane_of_their_own(opened: Any) -> None:
    values = [
        made.traced(depth, error, 1.0, 44.0) for depth, error in enumerate((1.0, float("inf"), float("nan"), 0.0))
    ]
    verified = dataclasses.replace(made.passed(), traces=(Trace("example sizes", 4, tuple(values)),))
    page = opened(made.bundle(verified))
    assert page.locator("#depth svg.plot text", has_text="∞, NaN").is_visible()
    page.locator("#depth svg.plot").press("Home")
    page.locator("#depth svg.plot").press("ArrowRight")
    assert "∞ units" in page.locator("#depth .detail").inner_text()


def test_a_model_of_5000_nodes_is_small_and_quick(opened: Any) -> None:
    data = made.bundle(made.failed(nodes=5000))
    text = render_page(data)
    assert len(text) < 2_000_000
    page = opened(data)
    assert page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart") < 5000
    page.locator("#bundle summary").click()
    assert page.locator("#bundle tbody tr").count() == 100
    page.get_by_role("button", name=re.compile("Show 1,000 more of 5,0")).click()
    assert page.locator("#bundle tbody tr").count() == 1100


def test_of_many_operators_the_bridged_ones_come_first(opened: Any) -> None:
    data = made.bundle(made.passed())
    native = next(row for row in data["manifest"]["operators"] if row["rung"] == "native")
    mended = next(row for row in data["manifest"]["operators"] if row["rung"] == "kernel")
    data["manifest"]["operators"] = [*({**native, "target": f"aten::op_{n}"} for n in range(60)), mended]
    page = opened(data)
    assert targets(page)[:2] == [mended["target"], "aten::op_0"]
    assert page.locator("#operators tbody tr").count() == 25
    page.get_by_role("button", name="Show 36 more of 61").click()
    assert page.locator("#operators tbody tr").count() == 61


def test_many_traces_are_thinned_and_keep_the_worst(tmp_path: Path) -> None:
    found = made.trace("sizes 2", 1200, diverges=1199, factor=900)
    verified = dataclasses.replace(made.passed(), traces=(found,) * 40)
    text = render_page(made.bundle(verified))
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert len(text) < 5_000_000
    for trace in data["traces"]:
        assert len(trace["values"]) == 1000
        assert trace["left_out"] == 200
        assert trace["values"][-1][3] == "mismatch"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_on_a_phone(opened: Any, scheme: str) -> None:
    for data in (made.bundle(made.several(), THREE), made.bundle(made.failed()), made.hostile()):
        page = opened(data, scheme=scheme, width=360)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert contrasts(page) >= 4.5


def contrasts(page: Any) -> float:
    """The least contrast of any text with what it stands on."""
    return float(
        page.evaluate(
            """() => {
          const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
          const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92
            : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
          const back = (node) => { for (; node; node = node.parentElement) {
            const color = numbers(getComputedStyle(node).backgroundColor);
            if (color.length < 4 || color[3] > 0) return color; } return [255, 255, 255]; };
          let least = 21;
          const texts = "p, h1, h2, h3, th, td, dt, dd, a, b, small, .status, .tag, button";
          for (const node of document.querySelectorAll(texts)) {
            if (!node.textContent.trim() || !node.getClientRects().length) continue;
            const [a, b] = [light(numbers(getComputedStyle(node).color)), light(back(node))].sort((x, y) => y - x);
            least = Math.min(least, (a + 0.05) / (b + 0.05));
          }
          return least; }"""
        )
    )


def test_divergences_at_one_node_are_one_card(opened: Any) -> None:
    found = made.failed()
    again = dataclasses.replace(found.divergences[0], case="sizes 3")
    page = opened(made.bundle(dataclasses.replace(found, divergences=(*found.divergences, again))))
    cards = page.locator("#divergences .card h3").all_inner_texts()
    assert [text.removeprefix("✕ ") for text in cards] == ["sizes 2, sizes 3: first mismatching node"]


def test_shares_of_the_limit_are_readable() -> None:
    shares = (0.0, 1e-5, 0.0264, 0.5, 1.5, 47.92, 715_255.7, 1e9, float("inf"))
    assert [times(share) for share in shares] == [
        *("0%", "less than 0.1%", "2.6%", "50%", "1.5 times", "47.9 times", "715,000 times"),
        *("more than a million times", "infinitely many times"),
    ]


def test_the_words_of_a_summary() -> None:
    summary = summarise(made.bundle(dataclasses.replace(made.passed(), reference="onnxruntime on model.onnx")))
    assert summary.title == "Matches the original model"
    exact = dataclasses.replace(made.passed(), comparisons=(made.compared("y", "example sizes", 0.0, 0.0, budget=0.0),))
    assert summarise(made.bundle(exact)).sentences[-1] == "All outputs are bitwise identical."
    assert summarise(made.bundle(made.failed())).tone == "bad"
    ways = joined([made.passed(f"onnxruntime with {what}") for what in ("kernels", "function bodies")])
    assert "All outputs match PyTorch on 3 sets of inputs." in summarise(made.bundle(ways)).sentences[1]
    assert summarise(made.bundle(made.not_run())).tone == "open"
    given = {"rtol": 1e-3, "atol": 0.0}
    summary = summarise(made.bundle(dataclasses.replace(made.passed(), tolerance=given)))
    assert summary.title == "Within the given tolerance of PyTorch"
    assert "The tolerance was given by the user (rtol=0.001, atol=0)" in summary.sentences[-1]
    failed = summarise(made.bundle(dataclasses.replace(made.failed(), tolerance=given)))
    assert failed.title == "Not within the given tolerance of PyTorch"


def test_the_tiles_count_what_did_not_pass_as_the_sentences_do(opened: Any) -> None:
    page = opened(made.bundle(made.failed()))
    assert "does not match PyTorch on 1 of 3 sets of inputs" in page.locator(".verdict").inner_text()
    tiles = [tile.splitlines() for tile in page.locator(".tiles > div").all_inner_texts()]
    assert tiles[:2] == [["Output comparisons", "1 of 6", "did not pass"], ["Sets of inputs", "1 of 3", "did not pass"]]
    page = opened(made.bundle(made.several(), THREE))
    assert page.locator(".tiles > div").nth(1).inner_text().splitlines() == ["Sets of inputs", "6", "passed"]


@pytest.mark.quick("1200-3", "360-60", every=0)
@pytest.mark.parametrize("nodes", [1, 3, 60])
@pytest.mark.parametrize("width", [360, 1200])
def test_the_labels_of_the_axes_do_not_overlap(nodes: int, width: int, opened: Any) -> None:
    verified = dataclasses.replace(made.passed(), traces=(made.trace("example sizes", nodes),))
    page = opened(made.bundle(verified), width=width)
    boxes = [
        text.bounding_box()
        for text in page.locator("#depth svg.plot text").all() + page.locator(".small svg text").all()
    ]
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            apart_x = one["x"] + one["width"] <= other["x"] + 1 or other["x"] + other["width"] <= one["x"] + 1
            # The boxes of two lines of text may touch; a third of their height is free.
            apart_y = abs(one["y"] - other["y"]) >= 0.66 * one["height"]
            assert apart_x or apart_y, (one, other)


def test_a_wide_table_uses_the_width_of_the_window(opened: Any) -> None:
    page = opened(made.bundle(made.failed()), width=1600)
    frame = page.locator("#outputs .frame").first
    assert frame.evaluate("(frame) => frame.scrollWidth - frame.clientWidth") == 0, "nothing is cut off"
    assert frame.bounding_box()["width"] > 1032, "wider than the column of text"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1600
