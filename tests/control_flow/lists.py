"""Lists and tuples that a loop of a dynamic number of iterations fills and reads."""

# ruff: noqa: B905, RUF005, C416 - the constructs under test

from __future__ import annotations

import dataclasses
import functools
import math

import torch
from program import counts, program
from torch import nn

ROWS = {"x": {0: torch.export.Dim.DYNAMIC}}
SIZES = [(torch.arange(3.0 * n).reshape(n, 3).sin(),) for n in (7, 2, 3, 12)]


@program("Loop", cases=SIZES, dynamic=ROWS)
def inserted_at_the_front(x):
    rows, states, state = [], [x[0], x[-1]], torch.zeros(3)
    for step in reversed(x.unbind(0)):
        state = torch.tanh(state * 0.5 + step)
        rows.insert(0, state)
        states = [state, state * 2] + states
    return torch.stack(rows, 1), torch.stack(states)


@program("Loop", cases=SIZES, dynamic=ROWS)
def tuples_that_grow(x):
    states, others, lists, state = (), (x[0],), [x[1]], torch.zeros(3)
    for i in range(x.shape[0]):
        state = torch.tanh(state * 0.5 + x[i])
        states = states + (state,)
        others += (state, state * i)
        lists = lists + [state]
    return torch.stack(states), torch.stack(others), torch.cat(lists), states[-1] + others[1]


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def tuple_under_condition(x):
    kept = ()
    for row in x:
        if row.sum() > 0:
            kept = kept + (row, row * 2)
    return torch.stack((x[0], *kept)), len(kept)


@program("Loop", cases=SIZES, dynamic=ROWS)
def assigned_by_position(x):
    n = x.shape[0]
    states, others, numbers, state = [None] * n, [None for _ in range(n)], [0.5] * n, torch.zeros(3)
    for i in range(n - 1, -1, -1):
        state = torch.tanh(state * 0.5 + x[i])
        states[i] = state
        others[-1 - i] = state * 2
        numbers[i] = i / 2
    return torch.stack(states), torch.stack(others), torch.tensor(numbers)


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def assigned_under_condition(x):
    rows = [torch.zeros(3)] * x.shape[0]
    for i, row in enumerate(x):
        if row[0] > 0:
            rows[i] = row + 1
    return torch.stack(rows)


@program("Loop", cases=SIZES, dynamic=ROWS)
def recurrence_of_two_rows(x):
    rows, others = [x[0], x[1]], [x[0], x[1]]
    for i in range(2, x.shape[0]):
        rows.append(torch.tanh(rows[-1] + rows[-2] * x[i]))
        others.append(torch.tanh(others[i - 1] + others[i - 2] * x[i]))
    return torch.stack(rows), torch.stack(others)


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def reads_the_whole_list(x):
    rows = []
    for i in range(x.shape[0]):
        if len(rows) > 2:
            rows.append(torch.stack(rows[1:]).mean(0) + x[i])
        else:
            rows.append(x[i] * (len(rows) + 1))
    return torch.stack(rows) / len(rows)


@program("Loop", "If", cases=counts(3, 1, 9))
def first_row_of_a_list(x, n):
    rows = [x]
    for _ in range(n):
        if rows[-1].sum() < 20:
            rows.append(rows[-1] * 2 + rows[0])
    return torch.stack(rows)


@program("Loop", cases=SIZES, dynamic=ROWS)
def numbers_as_a_tensor(x):
    even, order = [2 * i for i in range(x.shape[0])], [i for i in range(x.shape[0] - 1, -1, -1)]
    weights = []
    for i in range(len(x)):
        weights.append(math.exp(-0.1 * i))
    total = sum(even) + max(order) + order[0]
    return x[order] * torch.tensor(even)[:, None], total * torch.tensor(weights)


@program("Loop", cases=counts(3, 1, 9))
def numbers_that_depend_on_data(x, n):
    rows = []
    for i in range(n):
        rows.append(i * 2)
    return x + torch.tensor(rows).sum()


def _mean(rows):
    return sum(rows) / float(len(rows))


def _weighted(rows):
    total = 0
    for row in rows:
        total = total * 0.5 + row
    return total


def _count(rows):
    return len(rows)


@program("Loop", cases=SIZES, dynamic=ROWS)
def list_for_other_functions(x):
    rows = [row * 2 for row in x]
    return _mean(rows) + _weighted(rows) / _count(rows)


@program("Loop", cases=SIZES, dynamic=ROWS)
def unpacked_lists(x):
    rows = [row.exp() for row in x]
    a, b = rows[:2]
    first, *rest = rows
    *before, last = x.unbind(0)
    return a * b, torch.stack(rest) - first, torch.stack(before) + last


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def intervals_that_are_joined(x):
    spans = torch.stack([x[:, 0], x[:, 0] + x[:, 1].abs()], 1)
    spans = spans[spans[:, 0].argsort()]
    joined = [spans[0]]
    for span in spans[1:]:
        if span[0] <= joined[-1][1]:
            joined[-1] = torch.stack([joined[-1][0], torch.maximum(joined[-1][1], span[1])])
        else:
            joined.append(span)
    return torch.stack(joined)


@program("Loop", "If", cases=SIZES, dynamic=ROWS)
def sums_until_a_negative_number(x):
    sums = [x[0].sum() * 2]
    for i in range(1, x.shape[0]):
        if i == 9:
            break
        if x[i, 0] > 0:
            sums[-1] += x[i].sum()
        else:
            sums.append(x[i].sum() * 2)
    return torch.stack(sums), len(sums)


ROWS_OF = {"x": {0: torch.export.Dim("rows"), 1: torch.export.Dim("columns")}}
MATRICES = [(torch.randn(n, m, generator=torch.Generator().manual_seed(n)),) for n, m in ((3, 5), (1, 2), (4, 9))]


@program("Loop", cases=MATRICES, dynamic=ROWS_OF)
def tensors_of_different_sizes_joined(x):
    positive, last, pairs = [x[0]], [], []
    for row in x:
        large = row[row > -1]
        positive.append(large[large < 1])
        positive.append(row)
        last.insert(0, torch.unique(row.round())[1:])
        pairs.append(torch.stack([torch.masked_select(row, row > 0)] * 2))
    return torch.cat(positive), torch.cat(last), torch.cat(pairs, 1), torch.cat([row[row > 0] for row in x])


@program("Loop", cases=MATRICES, dynamic=ROWS_OF)
def tensor_that_grows_by_different_numbers(x):
    y = torch.zeros(1, 1)
    for row in x:
        y = torch.cat([y, row[torch.nonzero(row > 0)]])
    return y


@program("Loop", cases=MATRICES, dynamic=ROWS_OF)
def tensors_of_different_sizes_in_two_loops(x):
    outer = []
    for row in x:
        inner = []
        for value in row:
            inner.append(row[row > value])
        outer.append(torch.cat(inner))
    return torch.cat(outer)


@program("If", "Loop", cases=[(one,) for (x,) in MATRICES[:1] for one in (x.abs(), -x.abs())], dynamic=ROWS_OF)
def tensors_of_different_sizes_of_a_loop_in_a_branch(x):
    rows = [x[0]]
    if x.sum() > 0:
        for row in x:
            rows.append(row[row > 0.5])
    else:
        rows.append(x[1])
    for row in x:
        rows.append(row[row < -0.5])
    return torch.cat(rows)


@program("If", "Loop", cases=MATRICES, dynamic=ROWS_OF)
def tensors_of_different_sizes_in_one_branch(x):
    rows, others, first = [], [], [x[0]]
    for row in x:
        if row.sum() > 0:
            rows.append(row[row > 0])
            rows.append(row[:2])
        others.append(row)
        if row[0] > 0:
            others.append(torch.unique(row.round()))
    if x[0, 0] > 0:
        first.append(x[x > 0])
    return torch.cat([x[0, :0], *rows]), torch.cat(others), torch.cat(first)


@program("If", "Loop", cases=MATRICES, dynamic=ROWS_OF)
def tensors_of_different_sizes_one_by_one(x):
    rows, total = [], torch.zeros(())
    for row in x:
        if row.max() > 0:
            rows.append(row[row > 0])
    if not rows:
        return torch.zeros(0), torch.zeros(0, dtype=torch.int64), total
    for row in rows:
        total = total + row.sum() * len(rows)
    sizes = [row.shape[0] for row in rows]
    return torch.stack([row.mean() for row in rows]) + rows[-1].sum() * rows[0][0], torch.tensor(sizes), total


@program("Loop", cases=MATRICES, dynamic=ROWS_OF)
def tensors_of_different_sizes_padded(x):
    rows = [row[row > 0] for row in x]
    left = torch.nn.utils.rnn.pad_sequence(rows, padding_value=-1.0, padding_side="left")
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).sum(0), left


SIZES = [(torch.randn(sum(sizes), 2), torch.tensor(sizes)) for sizes in ([2, 1, 3], [4, 0], [1, 1, 1, 5])]


@program("Loop", cases=SIZES, dynamic={"x": {0: torch.export.Dim.DYNAMIC}, "sizes": {0: torch.export.Dim.DYNAMIC}})
def parts_of_given_sizes(x, sizes):
    parts = torch.split(x, sizes.tolist())
    padded = torch.nn.utils.rnn.pad_sequence([part.long() for part in parts], batch_first=True)
    return padded, torch.stack([part.sum(0) for part in parts]), parts[-1].sum() * len(parts), torch.cat(parts)


@program("Loop", cases=MATRICES, dynamic=ROWS_OF)
def tensors_of_different_sizes_padded_to_the_largest(x):
    longest = int((x > 0).long().sum(1).max())
    rows, sizes = [], []
    for row in x:
        row = row[row > 0]
        sizes.append(row.shape[0])
        rows.append(torch.nn.functional.pad(row, (0, longest - row.shape[0])))
    return torch.stack(rows), torch.arange(longest)[None] < torch.tensor(sizes)[:, None]


@program("If", "Loop", cases=MATRICES, dynamic=ROWS_OF)
def at_most_two_from_each_row(x):
    found = []
    for row in x:
        count = 0
        while count < 2:
            if row[count] < 0:
                break
            found.append(row[count : count + 1])
            count += 1
    return torch.cat(found) if len(found) > 0 else x[0, :0]


@program("Loop", "If", cases=[(torch.arange(2.0 * n).reshape(n, 2) - 3,) for n in (5, 3, 9)], dynamic=ROWS)
def elements_taken_out(x):
    rows = []
    for row in x:
        if row.sum() > -9:
            rows.append(row * 2)
    first, last = rows.pop(0), rows.pop()
    return first, last, torch.stack(rows).cumsum(0)


@program(
    "Loop", cases=[(torch.arange(float(n)).sin()[None],) for n in (21, 8, 3, 40)], dynamic={"x": {1: ROWS["x"][0]}}
)
class ChunksThroughACell(nn.Module):
    """As in the detection of voice activity: the cell asks for the size of each chunk."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 4)

    def forward(self, x):
        rest = -x.shape[1] % 8
        if rest:
            x = torch.nn.functional.pad(x, (0, rest))
        state, found = torch.zeros(1, 4), []
        for chunk in x.split(8, 1):
            state = self.cell(chunk, state)
            found.append(state.sum(1))
        return torch.stack(found, 1)


@dataclasses.dataclass
class _Detection:
    box: torch.Tensor
    score: torch.Tensor


FEW = [(torch.arange(3.0 * n).reshape(n, 3).sin(),) for n in (5, 1, 2, 9)]


@program("Loop", cases=FEW, dynamic=ROWS)
def lists_of_tuples(x):
    pairs, states = [], [(x[0], x[0] * 2)]
    for row in x:
        pairs.append((row, row.sum()))
        h, c = states[-1]
        h = torch.tanh(h + row)
        states.append((h, c * 0.5 + h))
    rows, sums = zip(*pairs)
    h, c = states[-1]
    return torch.stack(rows), torch.stack(sums), torch.stack([h for h, _ in states]), h + c + states[0][1]


@program("Loop", "If", cases=FEW, dynamic=ROWS)
def tuples_under_a_condition(x):
    kept, total = [], torch.zeros(3)
    for i, row in enumerate(x):
        if row.sum() > 0:
            kept.append((i, (row, row[row > 0])))
    for i, (row, positive) in kept:
        total = torch.tanh(total + row * i + positive.sum())
    return total, len(kept)


@program("Loop", cases=FEW, dynamic=ROWS)
def dicts_and_objects_by_their_scores(x):
    found, objects = [], []
    for i, row in enumerate(x):
        found.append({"box": row, "score": row.max(), "id": i})
        objects.insert(0, _Detection(row, row.min()))
    found.sort(key=lambda one: one["score"], reverse=True)
    best = max(objects, key=lambda one: one.score.item())
    worst = objects.pop()
    numbers = torch.tensor([one["id"] for one in found])
    return torch.stack([one["box"] for one in found[::-1]]), numbers, found[0]["score"], best.box + worst.score


@program("Loop", "If", cases=FEW, dynamic=ROWS)
def pairs_of_iterables_as_lists(x):
    pairs, numbered = list(zip(x, x * 2)), [(row.sum().item(), i) for i, row in enumerate(x)]
    numbered.sort(reverse=True)
    kept = [{**one, "c": one["a"] * 2} for one in [{"a": a, "b": b} for a, b in pairs] if one["b"].sum() > 0]
    triples = [_ * i for i, (_, _, (_,)) in enumerate(zip(x, x + 1, zip(x + 2)))]
    return (
        torch.stack([a - b for a, b in pairs]),
        torch.stack(triples),
        x[[i for _, i in numbered]],
        sum((one["c"] for one in kept), x[0]),
    )


@program(cases=MATRICES, dynamic=ROWS_OF)
def parts_of_one_size_by_position(x):
    parts = x.split(2)
    listed = list(parts)
    return parts[0] * 2, parts[-1].sum(0), listed[-1], torch.cat(listed), len(parts) * x.sum()


def _multiples(x):
    rows = []
    for i in range(x.shape[0]):
        rows.append(x[i] * i)
    return rows


def _inner(rows):
    return (rows + rows)[1:-1]


@program("Loop", cases=FEW, dynamic=ROWS)
def lists_of_other_functions(x):
    """Functions without a loop take and return lists of a dynamic length."""
    rows = _multiples(x)
    both = rows[:-1] + [x[0]] + _inner(rows)
    rows.reverse()
    return torch.stack(both), torch.stack(rows)


@program(cases=FEW, dynamic=ROWS)
class PooledPositions(nn.Module):
    """A method takes every second number of a list."""

    def forward(self, x):
        places = self.pooled(places=list(range(x.shape[0])))
        return x[places], torch.arange(len(places)) + places[-1]

    def pooled(self, places):
        return [0] + places[1::2]


def _unchanged(rows):
    return rows


class _Tail:
    def __call__(self, rows, first=1):
        return rows[first:]


@program("Loop", cases=FEW, dynamic=ROWS)
def lists_through_several_functions(x):
    rows = _unchanged(_multiples(x))
    tail = functools.partial(_Tail(), first=2)
    return torch.stack([x[0]] + tail(rows)), torch.stack(_Tail()(rows=rows) + rows)


@program("Loop", "If", cases=FEW, dynamic=ROWS)
def elements_that_are_equal(x):
    places = [i // 2 for i in range(x.shape[0])]
    if 1 in places:
        x = x * places.index(1)
    return x * places.count(1), 3 not in places


class _Pair:
    def __init__(self, rows):
        self.rows = rows

    def names(self, *parts):
        return getattr(self, *parts)


@program("Loop", cases=FEW, dynamic=ROWS)
def lists_in_attributes(x):
    pair = _Pair(_multiples(x))
    return torch.stack(pair.names("rows")[1:] + pair.rows)


class _Rows(nn.Module):
    def forward(self, x):
        return _multiples(x)


class _Joined(nn.Module):
    def forward(self, rows):
        return torch.stack(rows[1:] + rows[:1])


@program("Loop", cases=FEW, dynamic=({0: torch.export.Dim.DYNAMIC},))
class ListsInSequence(nn.Sequential):
    def __init__(self):
        super().__init__(_Rows(), _Joined())
