"""Python's functions of iterables, of a dynamic number of items or by keys that are tensors."""

# ruff: noqa: B905, C417, RUF005 - the constructs under test

from __future__ import annotations

import functools
import itertools
import operator

import torch
from program import counts, program

ROWS = {"x": {0: torch.export.Dim.DYNAMIC}}
SIZES = [(torch.arange(3.0 * n).reshape(n, 3).sin(),) for n in (5, 2, 1, 9)]
TIES = [(torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 1.0], [3.0, 0.0], [0.0, 2.0]])[list(order)],) for order in
        ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 4, 0, 1, 3))]  # fmt: skip


@program("Loop", cases=SIZES, dynamic=ROWS)
def folded_to_one_value(x):
    rows = [row * 2 for row in x]
    last = functools.reduce(lambda a, b: torch.tanh(a - b), x)
    weighted = functools.reduce(lambda a, b: a * 0.5 + b, rows, torch.zeros(3))
    return last, weighted, functools.reduce(operator.add, rows)


@program("Loop", cases=SIZES, dynamic=ROWS)
def all_values_of_a_fold(x):
    sums = list(itertools.accumulate(x, lambda a, b: a * 0.5 + b))
    return torch.stack(sums), torch.stack(tuple(itertools.accumulate(x, initial=torch.ones(3))))


@program("Loop", cases=counts(3, 0, 1, 9))
def folded_a_number_of_times(x, n):
    return functools.reduce(lambda y, i: torch.sin(y + i), range(n), x)


@program("Loop", cases=SIZES, dynamic=ROWS)
def pairs_of_neighbours(x):
    total = torch.zeros(3)
    for a, b in itertools.pairwise(x):
        total = torch.tanh(total + a * b)
    for (i, j), row in zip(itertools.pairwise(range(x.shape[0])), x):
        total = total * i + row * j
    return total


@program("Loop", cases=SIZES, dynamic=ROWS)
def all_pairs(x):
    total, dots = torch.zeros(()), [x[0].sum()]
    for i, j in itertools.product(range(x.shape[0]), range(1, 3)):
        total = torch.cos(total + x[i, j])
    for i, j in itertools.combinations(range(x.shape[0]), 2):
        dots.append(torch.dot(x[i], x[j]) * i)
    for a, b in itertools.product(x, repeat=2):
        total = torch.cos(total + torch.dot(a, b))
    return total, torch.stack(dots)


@program("Loop", cases=SIZES, dynamic=ROWS)
def one_after_the_other(x):
    total = torch.zeros(3)
    for row in itertools.chain(x, x[1:] * 2, [torch.ones(3)]):
        total = torch.tanh(total + row)
    for i in itertools.chain(range(x.shape[0]), range(x.shape[0] - 1, -1, -1)):
        total = torch.tanh(total * i + x[i])
    return total


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def mapped_and_filtered(x):
    rows = list(map(lambda row: torch.tanh(row) * 2, x))
    kept = list(filter(lambda row: row.sum() > 0, rows))
    products = list(map(torch.mul, x, rows))
    return torch.stack(rows), torch.stack([x[0], *kept]), torch.stack(products), len(kept)


@program(cases=SIZES, dynamic=ROWS)
def lists_of_rows(x):
    rows, numbered = list(x), tuple(reversed(x))
    first, *rest = x
    rows.append(numbered[0])
    return torch.stack(rows), torch.stack(rest + [first])


@program("Loop", cases=SIZES, dynamic=ROWS)
def best_of_a_dynamic_number(x):
    best = max(x, key=lambda row: row.sum())
    index = min(range(x.shape[0]), key=lambda i: x[i, 0].item())
    return best, x[index] * index, max([row * 2 for row in x], key=lambda row: row[1].item())


@program("Loop", cases=[*SIZES, (TIES[0][0][:, [0, 1, 1]],)], dynamic=ROWS)
def order_of_a_dynamic_number(x):
    rows = sorted(x, key=lambda row: row[0].item())
    order = sorted(range(x.shape[0]), key=lambda i: x[i, 1].item(), reverse=True)
    others = [row * 2 for row in x]
    others.sort(key=lambda row: row[2])
    return torch.stack(rows), x[order], torch.stack(others), torch.tensor(sorted(x[:, 0].tolist()))


@program("Loop", cases=[(torch.arange(3.0 * n).reshape(n, 3).sin(),) for n in (5, 3, 4, 9)], dynamic=ROWS)
def elements_that_are_deleted(x):
    rows, others = [row * 2 for row in x], [row.sin() for row in x]
    last, table = [row.cos() for row in x], {"x": x, "y": x}
    del rows[0], others[-1], table["y"]
    del last[:2]
    del rows[1]
    return torch.stack([*rows, x[0]]), torch.stack(others), torch.stack(last) * len(table)


@program(cases=TIES)
def order_by_keys_of_tensors(x):
    rows = sorted(x, key=lambda row: row[0].item())
    indices = sorted(range(5), key=lambda i: x[i, 0], reverse=True)
    pairs = [(float(row[0]), i) for i, row in enumerate(x)]
    pairs.sort(reverse=True)
    best = max([(row[0] * 2, row) for row in x], key=lambda pair: pair[0])
    numbers = sorted(float(value) for value in x[:, 1])
    return torch.stack(rows), x[indices[1]], x[pairs[0][1]] + x[pairs[4][1]] * 2, best[1], torch.tensor(numbers)


@program("If", "Loop", cases=SIZES, dynamic=ROWS)
def comprehensions_of_several_loops(x):
    products = torch.stack([a * b for a in x for b in x])
    upper = torch.stack([a - b for i, a in enumerate(x) for b in x[i:] if a[0] >= b[0]])
    lower = torch.stack([x[i] * j for i in range(x.shape[0]) for j in range(i + 1)])
    columns = torch.stack([row[i] * row[j] for row in x for i in range(3) for j in range(i)])
    return products, upper, lower, columns, sum((a * b).sum() for a in x for b in x)


@program("If", "Loop", cases=SIZES, dynamic=ROWS)
def search_of_several_loops(x):
    if any((a - b).abs().sum() < 0.5 for i, a in enumerate(x) for b in x[i + 1 :]):
        return x * 2
    return x


@program("If", "Loop", cases=SIZES, dynamic=ROWS)
def parts_that_are_collected(x):
    parts = [x[i : i + 2] for i in range(0, x.shape[0], 2)]
    sums = torch.stack([part.sum(0) for part in parts])
    changed = []
    for part in parts:
        changed.append(torch.tanh(part) * part.mean())
    return sums, torch.cat(changed), parts[-1]


def halves(x):
    for row in x:
        yield row / 2


def windows(x, size):
    """The parts of a tensor."""
    for i in range(0, x.shape[0], size):
        yield x[i : i + size]


def positive(x):
    for i, row in enumerate(x):
        if row.sum() > 0:
            yield i, row


def until_large(x):
    for row in x:
        if row.sum() > 1:
            return
        yield row


def with_ends(x):
    yield x[0]
    yield from halves(x)
    yield x[-1]


@program("If", "Loop", cases=[*SIZES, (-torch.ones(4, 3),), (torch.ones(4, 3),)], dynamic=ROWS)
def generators(x):
    total = torch.zeros(3)
    for half in halves(x):
        total = torch.tanh(total + half)
    for i, row in positive(x):
        total = total + row * i
    ends = torch.cat([row[None] for row in with_ends(x)])
    return total, sum(until_large(x), torch.zeros(3)), ends, torch.stack(list(halves(x)))


@program("If", "Loop", cases=SIZES, dynamic=ROWS)
def generator_of_parts(x):
    total = torch.zeros(3)
    for window in windows(x, 2):
        total = torch.tanh(total + window.sum(0))
    return total, torch.stack([window.sum(0) for window in windows(x, 4)])


@program("Loop", cases=SIZES, dynamic=ROWS)
class GeneratorMethod(torch.nn.Module):
    def states(self, x):
        h = torch.zeros(3)
        for row in x:
            h = torch.tanh(h + row)
            yield h

    def forward(self, x):
        return torch.stack(tuple(self.states(x)))


@program("Loop", cases=SIZES, dynamic=ROWS)
def generator_expressions(x):
    def collected(rows):
        return torch.stack([row + 1 for row in rows])

    doubled = (row * 2 for row in x)
    constants = (i * 2 for i in range(3))
    return torch.stack(list(doubled)), collected(row * 3 for row in x), x * next(constants) + next(constants)


BOXES = [(torch.tensor(boxes), torch.arange(35.0).reshape(5, 7).sin()) for boxes in (
    [[0, 1, 4, 3], [2, 0, 6, 5], [1, 1, 2, 2]], [[3, 2, 7, 5]], [[0, 0, 7, 5], [6, 4, 7, 5]])]  # fmt: skip


@program("Loop", cases=BOXES, dynamic={"boxes": ROWS["x"], "image": None})
def numbers_of_a_row(boxes, image):
    total = torch.zeros(boxes.shape[0], 2)
    for i in range(boxes.shape[0]):
        left, top, right, bottom = boxes[i].tolist()
        total[i, 0] = image[top:bottom, left:right].sum() / max(right - left, 1)
    for i, row in enumerate(boxes):
        left, top, right, bottom = map(int, row)
        total[i, 1] = image[top:bottom, left:right].amax()
    return total


@program("Loop", cases=BOXES, dynamic={"boxes": ROWS["x"], "image": None})
def rows_as_lists_of_numbers(boxes, image):
    rows = boxes.tolist()
    sums = torch.stack([image[top:bottom, left:right].sum() for left, top, right, bottom in rows])
    widths = [[i, (right - left) / 2] for i, (left, _, right, _) in enumerate(rows)]
    pairs = boxes.unflatten(1, (2, 2)).tolist()
    return sums, torch.tensor(widths), torch.tensor(sorted(rows, key=lambda row: row[2])), torch.tensor(pairs)
