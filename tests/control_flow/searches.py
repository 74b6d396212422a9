"""Searches among a dynamic number of items: ``any``, ``all``, ``next``, a variable that is None if none is found."""

from __future__ import annotations

import torch
from program import program

ROWS = {"x": {0: torch.export.Dim.DYNAMIC}}
SIZES = [(torch.arange(3.0 * n).reshape(n, 3).sin(),) for n in (5, 1, 9)]
SIZES += [(torch.ones(4, 3),), (-torch.ones(2, 3),), (torch.eye(3) * 3,)]


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def any_and_all_of_a_dynamic_number(x):
    if any(row.sum() > 2 for row in x):
        x = x * 2
    if all(bool((row < 2).all()) for row in x if row[0] > 0):
        x = x - 1
    rises = any(x[i, 0] > x[i + 1, 0] for i in range(x.shape[0] - 1))
    return x, all(i < 7 or b.sum() > 0 for i, (b, _, _) in enumerate(zip(x, x, x, strict=True))), rises


@program("If", cases=SIZES, dynamic=ROWS)
def any_and_all_of_a_fixed_number(x):
    is_positive = any(x[:, i].sum() > 0 for i in range(3))
    are_small = all(value.sum() < 5 for value in (x, x * 2, None) if value is not None)
    return x * 2 if is_positive and not are_small else x + 1


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def first_of_a_dynamic_number(x):
    row = next((row for row in x if row.sum() > 0.5), torch.zeros(3))
    index = next((i for i in range(x.shape[0]) if x[i].sum() > 0.5), x.shape[0])
    total = x[:index].sum(0) + row
    return next((i * row for i, row in enumerate(x) if row[0] > 0.5), total)


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def first_or_none(x):
    row = next((row for row in x if row.sum() > 0.5), None)
    if row is None:
        return torch.zeros(3)
    return row * 2


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def none_if_nothing_is_found(x):
    found = None
    for row in x:
        if row.sum() > 0.5:
            found = row
            break
    return x.sum(0) if found is None else found * 2


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def last_pair_that_is_found(x):
    best, index, pair = None, None, None
    for i, row in enumerate(x):
        if row.sum() > 0.5:
            best, index = row, i
        for j in range(3):
            if row[j] > 0.9:
                pair = (i, j)
    y = x.sum(0)
    if best is not None:
        y = y + best * index
    if pair is not None:
        i, j = pair
        y = y + x[i] * j
    return y * 2


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def a_search_that_reads_its_target(x):
    first = x[0]
    first = next((row for row in x if row.sum() > first.sum()), first + 1)
    return first


@program("If", cases=SIZES, dynamic=ROWS)
def items_of_filter_and_map(x):
    count = next(filter(lambda number: number > 2, [1, 2, 3, 4])) + next(map(abs, [-1]))
    if x.sum() > 0:
        x = x * count
    return x
