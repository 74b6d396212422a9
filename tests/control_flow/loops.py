"""Loops: ``while``, ``for`` over ranges and tensors, ``break``, ``continue``, ``return``, lists that grow."""

# ruff: noqa: SIM108, B007 - the constructs under test

from __future__ import annotations

import collections
import dataclasses

import torch
from program import DOWN, UP, counts, program
from torch import nn
from torch.nn.functional import softplus

ROWS = {"x": {0: torch.export.Dim.DYNAMIC}}
FAR = ([0.0, 0.5, 0.2],), ([5.0, 1.0, 1.0],), ([-9.0, -9.0, -9.0],)
MANY = ([[1.0, -2.0], [3.0, 0.5], [-1.0, 2.0]],), ([[2.0, 2.0]],), ([[-1.0, 1.0], [4.0, 1.0]] * 4,)


@program("Loop", cases=(([1.0, 1.0, 1.0],), ([90.0, 90.0, 90.0],), ([40.0, 5.0, 4.0],)))
def while_value(x):
    while x.sum() < 100:
        x = x * 2
    return x


@program("Loop", cases=counts(3, 0, 1, 9))
def while_counter(x, n):
    i = 0
    while i < n:
        x = x * 1.5 + i
        i += 1
    return x


@program("Loop", cases=counts(3, 0, 1, 9))
def while_item(x, n):
    i = n.item()
    while i > 0:
        x = x + i
        i = i - 1
    return x


@program("Loop", "If", cases=(([1.0, 2.0],), ([90.0, 1.0],), ([1.0, -1.0],), ([4.0, 4.0],)))
def loops_with_gradient_modes(x):
    for limit in (10, 30):
        while x.sum() < limit:
            with torch.enable_grad():
                y = x * 2 if x.max() > 2 else x + 1
            x = y + 1
    return x


class _ProgressBar:
    """As that of tqdm."""

    __module__ = "tqdm.std"

    def __init__(self, iterable):
        self.iterable = iterable

    def __iter__(self):
        return iter(self.iterable)


@program("Loop", cases=MANY, dynamic=ROWS)
def with_a_progress_bar(x):
    for i in _ProgressBar(reversed(range(x.shape[0]))):
        x = x * 0.5 + x[i]
    for _, row in enumerate(_ProgressBar(x)):
        x = x + row
    return x


@program("Loop", cases=MANY, dynamic=ROWS)
def over_a_list_of_a_range(x):
    y = x[0]
    for start in list(range(0, x.shape[0] - 2, 2)):
        y = y + x[start + 2]
    for start in list(range(x.shape[0] - 2, 1, -1)):
        y = y * 0.5 + x[start]
    return y


@program("Loop", "Where", cases=counts(3, 1, 0, 9))
def while_true_with_break(x, n):
    i = 0
    while True:
        x = x * 1.1
        i = i + 1
        if i >= n:
            break
    return x, i


@program("Loop", cases=(([1.0, 1.0, 1.0],), ([0.01, 0.01, 0.01],), ([200.0, 0.0, 0.0],)))
def while_with_two_conditions(x):
    steps = 0
    while x.sum() < 100 and steps < 5:
        x = x * 2
        steps += 1
    return x * steps


@program("Loop", cases=(([1.0, 1.0, 1.0],), ([0.01, 0.01, 0.01],), ([200.0, 0.0, 0.0],)))
def while_not_done(x):
    done = torch.tensor(False)
    steps = 0
    while not done and steps < 6:
        x = x * 2
        done = x.sum() > 50
        steps += 1
    return x


@program("Loop", cases=counts(3, 0, 1, 9))
def for_range(x, n):
    for i in range(n):
        x = x * 1.5 + i
    return x


@program("Loop", cases=counts(3, 0, 1, 9))
def for_range_of_item(x, n):
    y = x
    for _ in range(int(n)):
        y = y.sin() + x
    return y


@program("Loop", cases=counts(3, 0, 1, 9))
def for_range_from(x, n):
    total = 0
    for i in range(1, n + 1):
        total = total + x * i
    return x + total


@program("Loop", cases=counts(3, 0, 1, 9))
def for_range_with_step(x, n):
    for i in range(0, n, 2):
        x = x + i
    return x


@program("Loop", cases=counts(3, 0, 1, 9))
def for_range_backwards(x, n):
    for i in range(n, 0, -1):
        x = x * 0.5 + i
    return x


@program("Loop", "If", cases=counts(3, 0, 1, 9))
def for_with_branch(x, n):
    for i in range(n):
        if x.sum() > i:
            x = x - 1
        else:
            x = x + 2
    return x


@program("Loop", "If", cases=counts(3, 0, 1, 9))
def for_with_continue(x, n):
    for i in range(n):
        if i % 2 == 1:
            continue
        x = x + i
    return x


@program("Loop", "If", cases=counts(3, 0, 1, 9))
def for_with_break(x, n):
    for i in range(n):
        if x.sum() > 4:
            break
        x = x + 1 + i
    return x


@program("Loop", "Where", cases=(([1.0, 2.0, 3.0],), ([0.1, 0.1, 0.1],), ([100.0, 0.0, 0.0],)))
def python_range_with_break(x):
    for i in range(10):
        x = x * 1.5
        if x.sum() > 20:
            break
    return x + i


@program("Loop", "If", cases=counts(3, 0, 1, 9))
def for_with_return(x, n):
    for i in range(n):
        x = x + i
        if x.sum() > 5:
            return x * 10
    return x


@program("Loop", "If", "Where", cases=counts(3, 0, 1, 9))
def for_else(x, n):
    for _ in range(n):
        x = x + 1
        if x.sum() > 8:
            break
    else:
        x = x * 100
    return x


@program("Loop", cases=counts(3, 0, 1, 5))
def nested_loops(x, n):
    for i in range(n):
        for j in range(i + 1):
            x = x + j
        x = x * 0.9
    return x


@program("Loop", cases=counts(3, 0, 1, 5))
def python_loop_inside(x, n):
    for _ in range(n):
        for k in range(3):
            x = x + k
    return x


@program("Loop", cases=counts(2, 0, 1, 3))
def index_by_counter(x, n):
    total = torch.zeros(())
    for i in range(n):
        total = total + x[i]
    return total


@program("Loop", cases=counts(2, 0, 1, 3))
def writes_by_counter(x, n):
    out = torch.zeros(3)
    for i in range(n):
        out[i] = x[i] * 2
    return out


@program("Loop", cases=counts(2, 0, 1, 3))
def writes_rows(x, n):
    out = torch.zeros(3, 3)
    for i in range(n):
        out[i, :] = x * i
        out[i, 0] += 1
    return out


@program("Loop", cases=MANY, dynamic=ROWS)
def list_comprehension(x):
    return torch.stack([row * i + 1 for i, row in enumerate(x)])


@program("Loop", cases=counts(3, 1, 9))
def list_comprehension_of_range(x, n):
    rows = [x * i for i in range(n)]
    return torch.cat(rows) + sum([1, 2])


@program("Loop", "If", cases=MANY, dynamic=ROWS)
def list_comprehension_with_test(x):
    return torch.stack([row * 2 for row in x if row.sum() > 0])


@program("If", cases=(UP, ([-1.0, 2.0, 0.5],), ([1.0, -1.0, -3.0],)))
def list_comprehension_of_pairs(x):
    return torch.stack([a + b for a, b in zip(x, x.flip(0), strict=True) if a > 0 if a + b > -5])


@program("Loop", "If", cases=MANY, dynamic=ROWS)
def sum_of_generator(x):
    return sum(row.exp() for row in x if row[0] > 0) + sum(range(3))


@program("Loop", cases=counts(2, 0, 1, 3))
def accumulates_in_place(x, n):
    total = torch.zeros(3)
    for _ in range(n):
        total += x
    return total


@program("Loop", cases=MANY, dynamic=ROWS)
def for_over_rows(x):
    total = torch.zeros(2)
    for row in x:
        total = total * 0.5 + row
    return total


@program("Loop", cases=(UP, DOWN, ([1.0, -1.0, 3.0],)))
def for_over_selected(x):
    total = torch.zeros(())
    for value in x[x > 0]:
        total = total * 2 + value
    return total


@program("Loop", "Where", cases=MANY, dynamic=ROWS)
def for_over_range_of_size(x):
    total = torch.zeros(2)
    for i in range(x.shape[0]):
        total = total + x[i] * i
        if total.sum() > 50:
            break
    return total


@program("Loop", cases=(UP, DOWN, ([1.0, -1.0, 3.0],)))
def for_enumerate(x):
    total = torch.zeros(())
    for i, value in enumerate(x[x > 0]):
        total = total + i * value
    return total


@program("Loop", cases=(UP, DOWN, ([1.0, -1.0, 3.0],)))
def for_zip(x):
    kept = x[x > 0]
    total = torch.zeros(())
    for a, b in zip(kept, kept * 2, strict=False):
        total = total + a * b
    return total


@program("Loop", cases=(UP, DOWN, ([1.0, -1.0, 3.0],)))
def for_over_indices(x):
    for index in torch.nonzero(x > 0).flatten():
        x = x + index
    return x


@program("If", cases=(UP, DOWN, ([1.0, -1.0, 3.0],)))
def static_rows_with_branch(x):
    total = torch.zeros(())
    for value in x:
        if value > 0:
            total = total + value
    return total


@program("Loop", "If", cases=counts(3, 0, 1, 9))
def append(x, n):
    rows = []
    for i in range(n):
        x = x + i
        rows.append(x * 2)
    return torch.stack(rows) if n > 0 else torch.zeros(0, 3)


@program("Loop", cases=counts(3, 1, 9))
def append_to_started_list(x, n):
    rows = [x]
    for i in range(n):
        x = x * 0.5 + i
        rows.append(x)
    return torch.stack(rows, 1)


@program("Loop", cases=counts(3, 1, 9))
def append_and_cat(x, n):
    rows = []
    for i in range(n):
        rows.append(x[:2] + i)
    return torch.cat(rows)


@program("Loop", cases=counts(3, 1, 9))
def append_two(x, n):
    rows, sums = [], []
    for i in range(n):
        rows.append(x + i)
        sums.append(x.sum() * i)
    return torch.stack(rows), torch.stack(sums)


@program("Loop", "Where", cases=counts(3, 1, 9))
def append_until_break(x, n):
    rows = []
    for _ in range(n):
        x = x + 1
        rows.append(x)
        if x.sum() > 6:
            break
    return torch.stack(rows)


@program("Loop", "If", cases=FAR)
def append_up_to_a_length(x):
    rows = [x]
    while len(rows) < 5 and x.sum() < 6:
        x = x + 1
        rows.append(x)
    return torch.stack(rows)


@program("Loop", "If", cases=FAR)
def append_until_a_length(x):
    rows, sums = [], []
    while True:
        rows += [x]
        sums += [x.sum()]
        if sums[-1] > 6:
            break
        elif len(rows) == 5:
            print("this is long enough")
            break
        x = x + 1
    return torch.stack(rows), torch.stack(sums)


@program("Loop", "If", cases=FAR)
def append_up_to_a_count(x):
    rows, i = [x], 0
    while i <= 4 and x.sum() < 6:
        x = x + 1
        rows.append(x)
        i += 1
    return torch.stack(rows)


@program("Loop", "If", cases=counts(3, 1, 9))
def append_under_condition(x, n):
    rows = [x]
    for _ in range(n):
        x = -x * 1.2
        if x.sum() > 0:
            rows.append(x)
    return torch.stack(rows)


@program("Loop", cases=counts(3, 0, 1, 9))
def tuple_state(x, n):
    a, b = x, x + 1
    for _ in range(n):
        a, b = b, a + b
    return a, b


@program("Loop", cases=counts(3, 0, 1, 9))
def dict_state(x, n):
    state = {"h": x, "count": 0}
    for _ in range(n):
        state["h"] = state["h"].sin()
        state["count"] += 1
    return state["h"] * state["count"]


@program("Loop", cases=counts(3, 0, 1, 9))
def variable_first_assigned_inside(x, n):
    for i in range(n):
        half = x / 2
        x = half + i
    return x


@program("Loop", "If", cases=counts(3, 0, 1, 9))
def python_flag(x, n):
    first = True
    for _ in range(n):
        if first:
            x = x * 10
            first = False
        x = x + 1
    return x


@program("Loop", cases=counts(3, 0, 1, 9))
def float_counter(x, n):
    t = 0.0
    for _ in range(n):
        x = x + t
        t += 0.25
    return x


@program("Loop", cases=counts(3, 0, 1, 9))
def number_becomes_tensor(x, n):
    total = 0
    for _ in range(n):
        total = total + x
    return total + x


def _newton(y, limit):
    guess = y / 2
    for _ in range(limit):
        if (guess * guess - y).abs().max() < 1e-3:
            break
        guess = (guess + y / guess) / 2
    return guess


@program("Loop", "If", cases=(([4.0, 9.0, 2.0],), ([4.0, 4.0, 4.0],), ([400.0, 900.0, 0.25],)))
def newton(x):
    return _newton(x, 20)


@program("Loop", "If", cases=(([4, 6, 9],), ([1, 1, 1],), ([7, 27, 3],)))
def collatz(x):
    steps = torch.zeros((), dtype=torch.int64)
    n = x.sum()
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps = steps + 1
    return steps


@program("Loop", cases=MANY, dynamic=ROWS)
def for_with_a_state_that_is_none_before_it(x):
    state, states = None, []
    for row in x:
        now = row.tanh()
        if state is not None:
            now = now + 0.5 * state
        states.append(now)
        state = now
    return torch.stack(states), state


@program("Loop", cases=counts(3, 0, 1, 9))
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x, n):
        h = torch.zeros(1, 4)
        for _ in range(n):
            h = self.cell(x[None], h)
        return h


@program("Loop", cases=counts(3, 0, 1, 9))
class Buffer(nn.Module):
    """A loop reads a buffer, and a module's list of layers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.5, 1.5, 1.0]))
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x, n):
        for _ in range(n):
            for layer in self.layers:
                x = torch.tanh(layer(x)) * self.scale
        return x


@program("Loop", cases=(([2, 5, 1, 0, 0, 0],), ([0, 4, 0, 0, 0, 0],), ([1, 1, 1, 1, 1, 1],)))
class GreedyDecoder(nn.Module):
    """Decodes until the end of the sequence, with a cache of a fixed size."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8)

    def forward(self, tokens):
        tokens = tokens.clone()
        cache = torch.zeros(6, 4)
        position = 0
        done = False
        while not done:
            cache[position] = self.embedding(tokens[position])
            following = self.head(cache.sum(0)).argmax()
            position += 1
            tokens[position] = following
            done = (following == 3) | (position >= 5)
        return tokens


@program("If", cases=(([[1.0, 2.0], [3.0, 4.0], [-1.0, 0.0]],), ([[-1.0, -2.0], [-3.0, -4.0], [-1.0, 0.0]],)))
class Experts(nn.Module):
    """Each expert takes the rows that are routed to it, and is skipped if there are none."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(2, 3)
        self.experts = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])

    def forward(self, x):
        chosen = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = chosen == number
            if mask.any():
                out[mask] = expert(x[mask])
        return out


@program("If", cases=(([[1.0, 2.0], [3.0, 4.0], [-1.0, 0.0]],), ([[-1.0, -2.0], [-3.0, -4.0], [-1.0, 0.0]],)))
class SparseMixture(nn.Module):
    """Each row goes to two experts; an expert without rows is skipped with ``continue``."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(2, 4)
        self.experts = nn.ModuleList([nn.Linear(2, 2) for _ in range(4)])

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        mask = nn.functional.one_hot(chosen, 4).permute(2, 1, 0)
        for number, expert in enumerate(self.experts):
            rank, rows = torch.where(mask[number])
            if rows.numel() == 0:
                continue
            result = expert(x[rows]) * weights[rows, rank, None]
            out.index_add_(0, rows, result)
        return out


@program("Loop", "If", cases=(([[1.0, 2.0], [3.0, 4.0], [-1.0, 0.0]],), ([[-1.0, -2.0], [-3.0, -4.0], [-1.0, 0.0]],)))
class ExpertsByName(nn.Module):
    """The names of the experts that have rows are texts with a number; others are found by a tensor of one element."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(2, 3)
        self.experts = nn.ModuleDict({f"expert_{number}": nn.Linear(2, 2) for number in range(3)})
        self.bias_0, self.bias_1, self.bias_2 = 0.5, 1.5, 2.5
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])

    def forward(self, x):
        chosen = nn.functional.one_hot(self.gate(x).argmax(-1), 3)
        out = torch.zeros_like(x)
        for number in (chosen.sum(0) > 0).nonzero():
            (rows,) = torch.where(chosen[:, number[0]])
            key = f"expert_{number[0]}"
            result = self.experts[key](x[rows]) + getattr(self, f"bias_{number.item()}")
            out.index_add_(0, rows, result + self.layers[number](x[rows]))
        return out


@program("Loop", "If", cases=(([1.0, 0.5, -1.0], 1.0), ([1.0, 2.0, 0.5], 3.0), ([1.0, 2.0, 0.5], 0.0)))
def adaptive_solver(y, end):
    t, h, steps = torch.zeros(()), torch.full((), 0.1), 0
    while t < end and steps < 200:
        h = torch.minimum(h, end - t)
        first, second = -y, -(y + h / 2 * -y)
        error = (h * (first - second)).abs().max()
        if error <= 1e-2:
            t = t + h
            y = y + h * second
        h = h * (0.9 * (1e-2 / (error + 1e-9)).sqrt()).clamp(0.2, 5.0)
        steps += 1
    return y


BATCH = {name: {0: torch.export.Dim("batch")} for name in ("x", "lengths")}
SEQUENCE = {"x": {1: torch.export.Dim.DYNAMIC}}


@program("Loop", cases=[(torch.randn(2, n, 4),) for n in (5, 3, 9)], dynamic=SEQUENCE)
class SelectiveScan(nn.Module):
    """Mamba's recurrence, token by token."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 4 + 2 * 3)
        self.log_a, self.d = nn.Parameter(torch.rand(4, 3)), nn.Parameter(torch.ones(4))

    def forward(self, x):
        delta, b, c = self.project(x).split([4, 3, 3], -1)
        delta = softplus(delta)
        state = torch.zeros(x.shape[0], 4, 3)
        outputs = []
        for t in range(x.shape[1]):
            decay = torch.exp(-delta[:, t, :, None] * self.log_a.exp())
            state = decay * state + (delta[:, t] * x[:, t]).unsqueeze(-1) * b[:, t, None]
            outputs.append((state @ c[:, t, :, None]).squeeze(-1))
        return torch.stack(outputs, 1) + x * self.d


@program("Loop", "If", cases=[(2 * torch.randn(n, 5),) for n in (6, 3, 9)], dynamic={"frames": {0: ROWS["x"][0]}})
class Transducer(nn.Module):
    """RNN-T's greedy search: at most two symbols for each frame, until the blank is the best."""

    def __init__(self):
        super().__init__()
        self.predict, self.embed, self.join = nn.GRUCell(4, 5), nn.Embedding(7, 4), nn.Linear(5, 7)
        nn.init.constant_(self.join.bias, 0.0)

    def forward(self, frames):
        state = torch.zeros(1, 5)
        last = torch.zeros((), dtype=torch.int64)
        out, count = torch.zeros(2 * frames.shape[0], dtype=torch.int64), 0
        for t in range(frames.shape[0]):
            symbols, going = 0, True
            while going and symbols < 2:
                state_after = self.predict(self.embed(last)[None], state)
                best = self.join(torch.tanh(frames[t] + state_after[0])).argmax()
                if best == 0:
                    going = False
                else:
                    out[count] = best
                    count, symbols, last, state = count + 1, symbols + 1, best, state_after
        return out, count


class _Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, t, y):
        return self.net(y) - t * y


@program(
    "Loop",
    cases=[(torch.randn(3, 2), torch.linspace(0, 1, n)) for n in (6, 3, 9)],
    dynamic={"y": None, "times": {0: ROWS["x"][0]}},
)
class FixedSteps(nn.Module):
    """A solver of fourth order with the steps that are given; all states are returned."""

    def __init__(self):
        super().__init__()
        self.field = _Field()

    def forward(self, y, times):
        states = [y]
        for t, end in zip(times[:-1], times[1:], strict=True):  # noqa: RUF007
            h = end - t
            a = self.field(t, y)
            b = self.field(t + h / 2, y + h / 2 * a)
            c = self.field(t + h / 2, y + h / 2 * b)
            y = y + h / 6 * (a + 2 * b + 2 * c + self.field(end, y + h * c))
            states.append(y)
        return torch.stack(states)


@program("Loop", cases=counts(3, 0, 1, 5))
def last_row_of_a_list(x, n):
    rows = [x]
    for _ in range(n):
        rows.append(rows[-1] * 2)
    return torch.stack(rows)


@program("Loop", cases=[(torch.rand(len(n), 6), n) for n in ([6, 3], [1, 2, 6], [5])], dynamic=BATCH)
def lengths_of_rows(x, lengths):
    means = []
    for i in range(x.shape[0]):
        n = int(lengths[i])
        means.append(x[i, :n].mean() + lengths[i].item())
    return torch.stack(means)


@program("Loop", cases=counts(3, 0, 1, 9))
class StateOfACalledMethod(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.last = None

    def step(self, i):
        self.state = torch.tanh(self.layer(self.state.data)) + i
        self.steps += 1
        self.last = self.state * 2
        return self.last

    def forward(self, x, n):
        self.state, self.steps = x, 0
        for i in range(n):
            x = x + self.step(i)
        return x, self.state * self.steps


@program("Loop", cases=[(torch.rand(n, 2, 2),) for n in (3, 1, 6)], dynamic={"x": {0: torch.export.Dim.DYNAMIC}})
def inverses(x):
    total = torch.eye(2)
    for matrix in x:
        total = torch.linalg.inv(matrix + 2 * torch.eye(2)) @ total
    return total


@program(cases=[(torch.rand(n, 2),) for n in (3, 1, 6)], dynamic={"x": {0: torch.export.Dim.DYNAMIC}})
def range_as_an_old_tensor(x):
    return x[torch.LongTensor(range(x.shape[0]))] * torch.tensor(range(x.shape[0]), dtype=torch.float32)[:, None]


@program(cases=[([[0.2, -1.0], [3.0, 0.5], [-1.0, 2.0]],), ([[2.0, 2.0], [-3.0, 0.0], [0.0, 9.0]],)])
def lists_in_an_index(x):
    rows, columns = (indices.tolist() for indices in torch.where(x > 0))
    return x[None, rows].sum(1), x[rows, columns, None]


def _points(n):
    return (torch.randn(n, 2, generator=torch.Generator().manual_seed(n)),)


@program("Loop", "If", cases=[_points(n) for n in (12, 5, 20)], dynamic={"x": {0: torch.export.Dim.DYNAMIC}})
def means_of_groups(x):
    means, before = x[:3].clone(), None
    for _ in range(20):
        group = torch.cdist(x, means).argmin(1)
        if before is not None and torch.equal(group, before):
            break
        before = group
        for k in range(3):
            members = x[group == k]
            if len(members) > 0:
                means[k] = members.mean(0)
    return means, group


@program("Loop", "If", cases=counts(3, 1, 9))
def a_sum_of_an_inner_loop(x, n):
    total = x * 0
    for i in range(n):
        if i != 1:
            total = total + 1
            for _ in range(2):
                total += x
    return total


@dataclasses.dataclass(frozen=True)
class _State:
    total: torch.Tensor
    count: int
    name: str = "state"


@program("Loop", cases=counts(3, 0, 1, 7))
def a_dataclass(x, n):
    state = _State(x * 0, 0)
    for i in range(n):
        state = dataclasses.replace(state, total=state.total + i * x, count=state.count + 2)
    return state.total, x + state.count


class _Tracker:
    __slots__ = ("largest", "rows", "steps")

    def __init__(self, largest, rows=()):
        self.largest, self.rows, self.steps = largest, list(rows), 0

    def update(self, x):
        self.largest = torch.maximum(self.largest, x)
        self.rows.append(x.sum())
        self.steps += 1


@program("Loop", cases=counts(3, 1, 7))
def an_object_that_a_method_changes(x, n):
    tracker = _Tracker(x)
    for i in range(n):
        tracker.update(x * i)
    return tracker.largest, torch.stack(tracker.rows), x * tracker.steps


@program("Loop", "If", cases=counts(4, 0, 1, 7))
def a_new_object_in_one_branch(x, n):
    trackers = {"low": _Tracker(x), "high": _Tracker(x * 2)}
    for i in range(n):
        if (x * i).sum() > 3:
            trackers["low"] = _Tracker(trackers["high"].largest + i)
    return trackers["low"].largest, trackers["high"].largest


def _waves(*frequencies):
    t = torch.arange(24) / 24
    x = sum((3 - i) * torch.sin(2 * torch.pi * f * t) for i, f in enumerate(frequencies))
    return (x[None, :, None] * torch.ones(2, 1, 3),)


@program("If", cases=[_waves(3, 5), _waves(4, 2), _waves(7, 1)])
def sections_of_the_strongest_periods(x):
    # TimesNet: periods from an FFT, as an array of NumPy, decide on padding and shapes.
    strength = torch.fft.rfft(x, dim=1).abs().mean(0).mean(-1)
    strength[0] = 0
    periods = x.shape[1] // torch.topk(strength, 2)[1].detach().cpu().numpy()
    total = x
    for period in (periods[0], periods[1]):
        if x.shape[1] % period != 0:
            length = (x.shape[1] // period + 1) * period
            y = torch.cat([x, torch.zeros(x.shape[0], length - x.shape[1], x.shape[2])], 1)
        else:
            length, y = x.shape[1], x
        y = y.reshape(x.shape[0], length // period, period, x.shape[2]).cumsum(1)
        total = total + y.reshape(x.shape[0], -1, x.shape[2])[:, : x.shape[1]]
    return total


@program("Loop", cases=counts(3, 0, 1, 7))
def inner_functions(x, n):
    total, steps, seen = x * 0, 0, {"largest": x}

    def add(row):
        nonlocal total, steps
        total = total + row
        steps += 1

    def both(row):
        add(row)
        seen["largest"] = torch.maximum(seen["largest"], row)

    for i in range(n):
        both(x * i)
    return total, x + steps, seen["largest"]


@program("Loop", "If", cases=[([0.5, 3.0],), ([0.0, 0.0],), ([9.0, -2.0],)])
def a_number_without_iterations(x):
    total = 0
    while (largest := x.abs().max()) > 1:
        x, total = x / 2, total + largest
    return x, total


@program("If", "Loop", cases=counts(3, 0, 1, 9))
def none_before_a_loop_that_may_not_run(x, n):
    best, rows = None, []
    for i in range(int(n)):
        y = torch.sin(x * (i + 1))
        best = y if best is None else torch.maximum(best, y)
        rows.append(best)
    if best is None:
        return x
    return sum(rows) + best


@program("If", "Loop", cases=counts(4, 0, 1, 2, 9))
def none_before_a_loop_with_break_and_else(x, n):
    last, state = None, (None, 1.0)
    for i in range(n):
        last = x * i if last is None else last + x
        state = (last, state[1] * 2.0)
        if last.sum() > 4:
            break
    else:
        x = x - 1
    return x if last is None else last * state[1] + state[0]


@program(
    "If", "Loop", cases=[([[1.0, 2.0], [3.0, -1.0]],), ([[-1.0, 2.0], [-2.0, 1.0]],), ([[1.0, 1.0]] * 5,)], dynamic=ROWS
)
def none_before_a_loop_over_kept_rows(x):
    total = None
    for row in x[x[:, 0] > 0]:
        total = row if total is None else torch.tanh(total + row)
    return torch.zeros(2) if total is None else total * 2


@program("If", "Loop", cases=counts(3, 0, 1, 9))
class HiddenStateOfALoopThatMayNotRun(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = None

    def step(self, x):
        if self.state is None:
            self.state = torch.zeros(3)
        self.state = torch.tanh(self.state + x)
        return self.state

    def forward(self, x, n):
        self.state = None
        total = torch.zeros(3)
        for _ in range(int(n)):
            total = total + self.step(x)
        return total


@program("If", "Loop", cases=counts(3, 0, 1, 9))
def list_of_a_loop_in_a_branch(x, n):
    rows, count = [x], int(n)
    if count >= 1:
        for i in range(count - 1):
            x = torch.tanh(x + i)
            rows.append(x)
        return sum(rows) + x
    return sum(rows)


@program("Loop", cases=MANY, dynamic=ROWS)
def writes_into_the_rows_that_it_loops_over(x):
    y, z, total = x * 2, x.clone(), torch.zeros(2)
    for i, row in enumerate(y):
        row[0] = i
        total = total + y.sum(0)
    for a, b in zip(z.unbind(0), x, strict=True):
        a.copy_(b.cumsum(0))
        if a.sum() > 3:
            break
    for row in x:
        row += 1
    return x * 1, y, z, total


@program("Loop", cases=MANY, dynamic=ROWS)
def writes_into_the_elements_of_a_list(x):
    rows = [row * 2 for row in x]
    for row in rows:
        row += 1
    return torch.stack(rows)


@program("Loop", "If", cases=MANY, dynamic=ROWS)
def counts_by_name(x):
    found = collections.Counter(positive=0, negative=0)
    for row in x:
        if row.sum() > 0:
            found["positive"] += 1
        else:
            found["negative"] += 1
        if row[0] > 2:
            found["positive"] += 1
    return torch.tensor([found["positive"], found["negative"]])


@program("Loop", cases=MANY, dynamic=ROWS)
def items_changed_in_place(x):
    x, y = x.clone(), torch.zeros_like(x)
    for i, (row, other) in enumerate(zip(x, y, strict=True)):
        other.copy_(row * i)
        row.mul_(2)
    for row in x.unbind(0):
        row.div_(row.abs().sum() + 1)
    for part in x.split(2):
        part -= part.mean()
    for row in reversed(y):  # A copy.
        row.zero_()
    return x, y


@program("Loop", cases=MANY, dynamic=ROWS)
def over_a_triangle(x):
    rows = torch.zeros_like(x)
    for i in range(x.shape[0]):
        row = x[i] * 1
        for j in range(i):
            row = row - rows[j] * j
        rows[i] = row
    return rows


@program("Loop", "If", cases=MANY, dynamic=ROWS)
def disjoint_parts_changed_in_place(x):
    y = torch.cat([x, x])
    first, rest = y[0], y[1:]
    for row in rest:
        row += first
    if x.sum() > 0:
        rest *= first
    return y


@program(
    "If",
    "Loop",
    cases=[([[1.0, -2.0], [3.0, 0.5]],), ([[0.1, 0.2]],), ([[9.0, 9.0]] * 3,), ([[2.0, -1.0]] * 5,)],
    dynamic=ROWS,
)
def while_that_assigns_in_its_condition(x):
    steps, rows, y = 0, [], x
    while (error := (x**2).sum()) > 0.5 and steps < 20:
        x, steps = x * 0.7, steps + 1
    while (size := y.abs().sum()) > 1:
        y = y * 0.5
        if size < 3:
            break
    else:
        y = y + 10
    while len(rows) < x.shape[0] and (value := x[len(rows)].sum()) < 3:
        rows.append(value)
    return x, error, y * size, torch.stack([x[0, 0], *rows])


@program("Loop", cases=MANY, dynamic=ROWS)
def starred_rows(x):
    first, *rest = x
    for row in rest:
        first = torch.tanh(first + row)
    return first
