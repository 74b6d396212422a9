"""The picture of a graph: boxes that do not overlap, each below what it reads, and lines between them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from opbridge.report.graph_picture import graph_picture

pytestmark = pytest.mark.newest


def row(name: str, operator: str = "", *reads: int) -> dict[str, Any]:
    return {"name": name, "operator": operator, "reads": list(reads)}


CHAIN = [row("x"), row("a", "Relu", 0), row("b", "mylib::scaled_add", 1), row("y", "", 2)]
DIAMOND = [
    row("x"),
    row("l", "Exp", 0),
    row("r", "Log", 0),
    row("s", "Sin", 2),
    row("j", "Add", 0, 1, 3),
    row("y", "", 4),
]
WIDE = [row("x"), *(row(f"n{i}", "LongOperatorName", 0) for i in range(9)), row("j", "Sum", *range(1, 10))]
LATE = [row("x"), row("late"), row("a", "Relu", 0), row("b", "Relu", 2), row("c", "Add", 1, 3), row("y", "", 4)]


@pytest.mark.parametrize("graph", [CHAIN, DIAMOND, WIDE, LATE])
def test_boxes_are_below_what_they_read_and_apart(graph: list[dict[str, Any]]) -> None:
    picture = graph_picture(graph)
    assert picture is not None
    boxes = picture["boxes"]
    assert [box[3] for box in boxes] == [item["operator"] or item["name"] for item in graph]
    for box, item in zip(boxes, graph, strict=True):
        assert all(boxes[at][1] < box[1] for at in item["reads"])
        assert box[0] - box[2] / 2 >= 0
        assert box[0] + box[2] / 2 <= picture["width"]
        assert box[1] + 26 <= picture["height"]
    for one, other in itertools.combinations(boxes, 2):
        assert one[1] != other[1] or abs(one[0] - other[0]) >= (one[2] + other[2]) / 2
    assert len(picture["lines"]) == sum(len(item["reads"]) for item in graph)
    ends = {(tuple(line[0]), tuple(line[-1])) for line in picture["lines"]}
    assert ends == {
        (tuple(boxes[at][:2]), tuple(box[:2])) for box, item in zip(boxes, graph, strict=True) for at in item["reads"]
    }


def test_a_picture_that_would_take_all_memory_is_not_made() -> None:
    long = [row("x"), *(row(f"n{i}", "Add", i, 0) for i in range(20_000))]
    wide = [*(row(f"x{i}") for i in range(2000)), row("j", "Sum", *range(2000))]
    assert graph_picture(long) is None
    assert graph_picture(wide) is None
    assert graph_picture([row("x"), row("a", "Add", 10**290, -1, 0)]) is not None


def test_a_chain_is_straight_and_an_input_is_just_above_its_reader() -> None:
    chain, late = graph_picture(CHAIN), graph_picture(LATE)
    assert chain is not None
    assert late is not None
    assert len({box[0] for box in chain["boxes"]}) == 1
    assert [box[5] for box in chain["boxes"]] == ["input", "node", "node", "output"]
    assert late["boxes"][1][1] == late["boxes"][3][1]


def test_rows_that_are_no_graph_are_no_picture() -> None:
    assert graph_picture([]) is None
    assert graph_picture([row("x")]) is None
    picture = graph_picture([row("x"), row("a", "Relu", 7, 1, -1, 0)])
    assert picture is not None
    assert len(picture["lines"]) == 1, "what a stranger's file says is only drawn if it is possible"
