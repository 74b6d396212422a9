"""Where the boxes and lines of a graph's picture are: each row of boxes reads values of the rows above it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from opbridge.bundle.graph import MOST_NODES

__all__ = ["graph_picture"]

_HEIGHT, _ROW, _GAP = 26.0, 54.0, 18.0
_CHARACTER = 7.2
_SWEEPS = 12
_MOST_LINES = 3000
"""The most boxes and lines of a picture together: a stranger's file may have any number."""


@dataclasses.dataclass
class _Place:
    """A box, or a point in which a line crosses a row. Its position is that of its centre."""

    rank: int
    width: float
    x: float = 0.0
    above: list[_Place] = dataclasses.field(default_factory=list)
    below: list[_Place] = dataclasses.field(default_factory=list)


def graph_picture(graph: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The picture in pixels: boxes as ``[x, y, width, text, name, kind]`` and lines as lists of points.

    Args:
        graph: Rows of ``bundle.graph.GraphRow``: inputs, then nodes, each after those that it reads, then outputs.

    Returns:
        None if there are no nodes, or more boxes and lines than a picture can show.
    """
    nodes = sum(bool(row["operator"]) for row in graph)
    if not 0 < nodes <= MOST_NODES or sum(1 + len(row["reads"]) for row in graph) > _MOST_LINES:
        return None
    reads = [[read for read in row["reads"] if 0 <= read < number] for number, row in enumerate(graph)]
    ranks = _ranks(graph, reads)
    texts = [str(row["operator"] or row["name"]) for row in graph]
    boxes = [_Place(rank, _CHARACTER * len(text) + 20) for rank, text in zip(ranks, texts, strict=True)]
    places = list(boxes)
    lines = [_line(boxes[at], box, places) for box, above in zip(boxes, reads, strict=True) for at in above]
    rows: list[list[_Place]] = [[] for _ in range(max(ranks) + 1)]
    for place in places:
        rows[place.rank].append(place)
    _arrange(rows)
    left = min(place.x - place.width / 2 for place in places)
    kinds = ["node" if row["operator"] else "output" if row["reads"] else "input" for row in graph]
    return {
        "width": round(max(place.x + place.width / 2 for place in places) - left + 2),
        "height": round(len(rows) * _ROW - _ROW + _HEIGHT + 2),
        "boxes": [
            [round(box.x - left + 1, 1), box.rank * _ROW + 1, round(box.width, 1), text, str(row["name"]), kind]
            for box, text, row, kind in zip(boxes, texts, graph, kinds, strict=True)
        ],
        "lines": [[[round(place.x - left + 1, 1), place.rank * _ROW + 1] for place in line] for line in lines],
    }


def _ranks(graph: Sequence[Mapping[str, Any]], reads: Sequence[Sequence[int]]) -> list[int]:
    """The row of each box: below what it reads; inputs, and nodes that read nothing, just above their first reader."""
    ranks = [0] * len(graph)
    for number, above in enumerate(reads):
        ranks[number] = max((ranks[at] + 1 for at in above), default=0)
    readers: dict[int, int] = {}
    for number, above in enumerate(reads):
        for at in above:
            readers[at] = min(readers.get(at, ranks[number]), ranks[number])
    return [readers.get(number, 1) - 1 if not reads[number] else rank for number, rank in enumerate(ranks)]


def _line(top: _Place, bottom: _Place, places: list[_Place]) -> list[_Place]:
    """The places of a line, with a point in each row that it crosses."""
    line = [top]
    for rank in range(top.rank + 1, bottom.rank):
        line.append(_Place(rank, 2))
        places.append(line[-1])
    line.append(bottom)
    for above, below in itertools.pairwise(line):
        above.below.append(below)
        below.above.append(above)
    return line


def _arrange(rows: Sequence[list[_Place]]) -> None:
    """Order each row by its neighbours, then move its places towards them, without overlaps."""
    for row in rows:
        for number, place in enumerate(row):
            place.x = number * 100.0
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            wanted = {id(place): _middle(place.above if down else place.below, place.x) for place in row}
            if sweep < _SWEEPS // 2:
                row.sort(key=lambda place: wanted[id(place)])
            _spread(row, [wanted[id(place)] for place in row])


def _middle(neighbours: Sequence[_Place], otherwise: float) -> float:
    return sum(place.x for place in neighbours) / len(neighbours) if neighbours else otherwise


def _spread(row: Sequence[_Place], wanted: Sequence[float]) -> None:
    """Put the places of a row as near as possible to where they are wanted: groups that touch share their shift."""
    groups: list[tuple[float, int]] = []  # The sum of the shifts, and the number of places.
    offsets, end = [], 0.0
    for number, place in enumerate(row):
        end += (row[number - 1].width + place.width) / 2 + _GAP if number else 0.0
        offsets.append(end)
        groups.append((wanted[number] - end, 1))
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            shift, count = groups.pop()
            groups[-1] = (groups[-1][0] + shift, groups[-1][1] + count)
    shifts = [shift / count for shift, count in groups for _ in range(count)]
    for place, offset, shift in zip(row, offsets, shifts, strict=True):
        place.x = offset + shift
