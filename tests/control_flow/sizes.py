"""Branches on a dynamic size of an input."""

from __future__ import annotations

import math

import torch
from program import DOWN, UP, program
from torch.nn.functional import avg_pool1d, interpolate, pad, scaled_dot_product_attention

LENGTH = {"x": {2: torch.export.Dim.DYNAMIC}}
LENGTHS = [(torch.arange(3.0 * n).reshape(1, 3, n).sin(),) for n in (8, 2, 9, 11, 12, 13, 20)]
IMAGE = {"x": {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}}
IMAGES = [(torch.arange(float(h * w)).reshape(1, 1, h, w).sin(),) for h, w in ((10, 10), (9, 12), (12, 9), (16, 5))]
SECTIONS = [(torch.arange(2.0 * sum(sizes)).reshape(-1, 2).sin(), sizes) for sizes in ([3, 2], [1, 0, 4], [2, 2, 1, 3])]

PICTURE = {"x": dict.fromkeys(range(4), torch.export.Dim.DYNAMIC)}
PICTURES = [(torch.rand(shape),) for shape in ((2, 3, 10, 10), (3, 2, 12, 9), (2, 2, 9, 12))]


@program("If", cases=LENGTHS, dynamic=LENGTH)
def padded_to_multiple(x):
    if x.shape[2] % 4:
        x = pad(x, (0, 4 - x.shape[2] % 4))
    return x.reshape(1, 3, -1, 4).sum(-1)


@program("If", cases=LENGTHS, dynamic=LENGTH)
def pooled_if_long(x):
    if x.shape[2] > 12:
        x = avg_pool1d(x, 2, ceil_mode=True)
    return x.cumsum(2)


def _padded(x):
    rest = x.shape[2] % 4
    if rest == 0:
        return x, 0
    return torch.cat([x, torch.zeros(1, 3, 4 - rest)], 2), 4 - rest


@program("If", "Where", cases=LENGTHS, dynamic=LENGTH)
def cropped_after_padding(x):
    x, extra = _padded(x)
    x = x.reshape(1, 3, -1, 4).cumsum(-1).flatten(2)
    if extra > 0:
        x = x[..., :-extra]
    return x


@program("If", "Where", cases=LENGTHS, dynamic=LENGTH)
def quotient_is_integer(x):
    parts = x.shape[2] / 4
    if parts.is_integer():
        added = False
    else:
        x, added = pad(x, (0, 3)), True
    return x[..., :-1] if added else x


@program("If", "Where", cases=LENGTHS, dynamic=LENGTH)
def several_conditions(x):
    n = x.shape[2]
    odd = n % 2 == 1 or n > 12
    return x + 1 if odd and n != 13 else x[..., ::2]


@program("Where", cases=IMAGES, dynamic=IMAGE)
def resized_by_shorter_side(x):
    h, w = x.shape[2:]
    short, long = (w, h) if w <= h else (h, w)
    a, b = 6, int(6 * long / short)
    height, width = (b, a) if w <= h else (a, b)
    return interpolate(x, (height, width), mode="bilinear")


@program("If", cases=IMAGES, dynamic=IMAGE)
def compares_tuples(x):
    size = tuple(x.shape[2:])
    if size == (10, 10):
        return x * torch.ones(10, 10).tril()
    if size != (12, 9):
        x = x + 1
    return x * 2


@program("If", cases=PICTURES, dynamic=PICTURE)
def resized_if_it_has_elements(x):
    height, width = x.shape[2:]
    if (height, width) == (12, 9):
        return 2 * x
    elif x.numel() > 0:
        x = interpolate(x, (12, 9), mode="bilinear")
    return x


@program("If", cases=LENGTHS, dynamic=LENGTH)
def chooses_a_function_by_size(x):
    change = torch.sin if x.shape[2] > 10 else torch.cos
    return change(x)


@program(cases=LENGTHS, dynamic=LENGTH)
def list_repeated_by_size(x):
    first = [x[..., :1]] * x.shape[2] + [x.sum(2, keepdim=True)]
    return torch.cat(first, 2) + torch.stack(2 * [x.mean(2)], 2).sum(2, keepdim=True)


@program("Loop", cases=LENGTHS, dynamic=LENGTH)
def index_by_number_and_tensor(x):
    rows, order = x[0].T, torch.tensor([2, 0])
    for i in range(x.shape[2]):
        rows = rows + rows[i, order].sum() * 0.1
    return rows


@program("If", cases=IMAGES, dynamic=IMAGE)
def numel_of_shape(x):
    count = x.shape.numel()
    if x.shape[2:].numel() > 100:
        x = x[..., ::2]
    return x.cumsum(2) / count


@program("If", "Where", cases=LENGTHS, dynamic=LENGTH)
def padded_twice(x):
    count = 0
    for multiple in (4, 8):
        if x.shape[2] % multiple:
            x, count = pad(x, (0, multiple - x.shape[2] % multiple)), count + 1
    return x.reshape(1, 3, -1, 8).sum(-1) * count


@program("If", cases=LENGTHS, dynamic=LENGTH)
def padded_in_each_stage(x):
    for _ in range(3):
        if x.shape[2] % 2 == 1:
            x = pad(x, (0, 1))
        x = x[..., 0::2] - x[..., 1::2]
    return x.cumsum(2)


def _windows(x):
    n, window = x.shape[2], 4
    if n % window != 0:
        x = pad(x, (0, (window - n % window) % window))
    x = (x.reshape(1, 3, -1, window).cumsum(-1)).flatten(2)
    return x[..., :n] if x.shape[2] > n else x


@program("If", cases=LENGTHS, dynamic=LENGTH)
def windows_of_padded_stages(x):
    x = _windows(x)
    if x.shape[2] % 2 == 1:
        x = pad(x, (0, 1))
    return _windows(x[..., 0::2] + x[..., 1::2])


def _reflected(x, left, right):
    """Reflection padding of inputs that are too short for it: a part of the padding is zeros, between both."""
    n, most = x.shape[2], max(left, right)
    if n <= most:
        missing = most - n + 1
        at_end = min(right, missing)
        left, right = left - (missing - at_end), right - at_end
        x = pad(x, (missing - at_end, at_end))
    return pad(x, (left, right), "reflect")


@program("If", cases=LENGTHS, dynamic=LENGTH)
def frames_of_reflected_input(x):
    n = x.shape[2]
    count = math.ceil(n / 4)
    padded = _reflected(x, 6, 6 + count * 4 - n)
    assert padded.shape[2] == 12 + count * 4
    frames = padded.unfold(2, 8, 4)[:, :, 1:-1]
    return frames.reshape(1, 3, count, 8).sum(3)


WAVES = [(torch.arange(2.0 * b * n).reshape(b, 2, n).sin(),) for b, n in ((2, 1200), (3, 300), (2, 576), (1, 1281))]


@program("If", cases=WAVES, dynamic={"x": {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC}})
def spectrogram_of_reflected_input(x):
    *before, n = x.shape
    count = math.ceil(n / 256)
    padded = _reflected(x, 384, 384 + count * 256 - n)
    waves = padded.reshape(-1, padded.shape[-1])
    window = torch.hann_window(1024)
    found = torch.stft(waves, 1024, 256, window=window, normalized=True, return_complex=True)
    found = found.view(*before, *found.shape[1:])[..., :-1, :]
    assert found.shape[-1] == count + 4
    return torch.view_as_real(found[..., 2 : 2 + count])


@program("Loop", cases=LENGTHS, dynamic=LENGTH)
def steps_of_unbind(x):
    state, states = torch.zeros(3), []
    for number, step in enumerate(x[0].unbind(1)):
        state = torch.tanh(state * 0.5 + step) + number
        states += [state]
    return torch.stack(states, 1), states[-1]


@program("Loop", cases=LENGTHS, dynamic=LENGTH)
def unbound_backwards(x):
    steps, state, states = torch.unbind(x, dim=2), torch.zeros(1, 3), []
    for step in reversed(steps):
        state = torch.tanh(state * 0.5 + step)
        states.extend([state])
    return torch.stack(states[::-1], 2) + torch.stack(steps[::-1], 2) + sum(steps[1:]).unsqueeze(2) + steps[0].sum()


@program("Loop", cases=LENGTHS, dynamic=LENGTH)
def steps_by_position(x):
    steps, state = x.unbind(2), torch.zeros(1, 3)
    for i in range(len(steps)):
        state = state * 0.5 + steps[i]
    return state + steps[0] - steps[-1]


@program("Loop", cases=LENGTHS, dynamic=LENGTH)
def pieces_of_split(x):
    means = []
    for piece in x.split(4, dim=2):
        means.append(piece.mean(2))
    return torch.stack(means, 2)


@program("Loop", cases=LENGTHS, dynamic=LENGTH)
def pieces_of_chunk(x):
    state, states = torch.zeros(1, 3), []
    for piece in x.chunk(x.size(2), dim=2):
        state = state * 0.5 + piece.squeeze(2)
        states.append(state)
    return torch.stack(states, 2)


@program("Loop", cases=SECTIONS, dynamic={"x": {0: "rows"}, "sizes": {0: "parts"}})
def sections_of_split(x, sizes):
    sums = [part.sum(0) for part in x.split(sizes.tolist())]
    for number, size in enumerate(sizes.tolist()):
        sums[number] = sums[number] * size
    return torch.stack(sums)


@program(cases=LENGTHS, dynamic=LENGTH)
def list_of_range(x):
    order = list(range(0, x.shape[2], 2))
    mask = torch.tensor(list(range(x.shape[2]))[::-1], dtype=torch.float32) < 3
    return x[..., torch.as_tensor(order)].sum(2) + x[..., mask].sum(2)


@program("Loop", cases=LENGTHS, dynamic=LENGTH)
def last_element_of_a_list(x):
    states = [x[..., 0]]
    for i in range(1, x.shape[2]):
        states.append(torch.tanh(states[-1] * 0.5 + x[..., i]))
    return torch.stack(states, 2)


@program("Loop", cases=LENGTHS, dynamic=LENGTH)
def list_in_reverse(x):
    states, state = [], torch.zeros(1, 3)
    for i in range(x.shape[2] - 1, -1, -1):
        state = torch.tanh(state * 0.5 + x[..., i])
        states.append(state)
    states.reverse()
    return torch.stack(states, 2)


@program("Loop", cases=LENGTHS, dynamic=LENGTH)
def tensor_that_grows(x):
    state, states, norms = x[..., 0], x[..., :1], torch.tensor([])
    for step in x[..., 1:].unbind(2):
        state = torch.tanh(state * 0.5 + step)
        states = torch.cat((states, state.unsqueeze(2)), dim=2)
        norms = torch.cat([norms, state.norm().reshape(1)])
    return states, norms


@program(cases=[*LENGTHS[2:], *LENGTHS[:2], (torch.ones(1, 3, 3),)], dynamic=LENGTH)
def windows_if_there_are_any(x):
    rows = x[0, :, : x.shape[2] // 4 * 4]
    if rows.shape[1] > 0:
        count = rows.shape[1] // 4
        rows = rows.reshape(3, count, 4)
        means = rows.mean(2)
        if count > 1:
            means = means.cumsum(1)
    else:
        means = rows.new_zeros(3, 0)
    return means


@program("If", "Where", cases=LENGTHS, dynamic=LENGTH)
def chosen_by_number(x):
    n = x.shape[2]
    of_one_shape = [x.sum(2), x.mean(2), x.amax(2)][n % 3]
    parts = (x, x[..., 1:], x[..., :1])[-(n % 3)]
    return of_one_shape, parts * [0.5, 1.5][n % 2], (x.amin(2), x.sum(2))[bool(n > 11)], x * [2, 3][bool(n > 12)]


class ChosenLayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Conv1d(3, 3, size, padding="same") for size in (1, 3, 5))

    def forward(self, x):
        return self.layers[x.shape[2] % 3](x)


program("If", cases=LENGTHS, dynamic=LENGTH)(ChosenLayer)


@program("Where", cases=IMAGES, dynamic=IMAGE)
def position_of_a_size(x):
    shape = x.shape[2:]
    longest, shortest = shape.index(max(shape)), list(shape).index(min(shape))
    return x.sum() + longest, x * (2 - shortest) + shape.count(9)


@program("If", "Where", cases=LENGTHS, dynamic=LENGTH)
def found_by_size(x):
    n = x.shape[2]
    scales = {8: 0.5, 9: 1.5}
    if n in scales:
        x = x * scales[n]
    return x + scales.get(n, 0.25) + {n: 1, n // 2: 2}[n]


@program(cases=IMAGES, dynamic=IMAGE)
def tables_by_size(x):
    tables, results = {}, []
    for y in (x, x[..., 1:], x + 1):
        key = y.shape[2], y.shape[3]
        if key not in tables:
            tables[key] = torch.arange(key[0] * key[1]).reshape(key) / key[1]
        results.append((y * tables[key]).sum())
    tables[x.shape[2], x.shape[3]] = 2 * tables[x.shape[2], x.shape[3]]
    return torch.stack(results), tables[x.shape[2], x.shape[3]]


class Positions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = {}

    def forward(self, x):
        n = x.shape[2]
        if n not in self.tables:
            self.tables[n] = torch.arange(n) / n
        return x + self.tables[n]


program(cases=LENGTHS, dynamic=LENGTH)(Positions)


class TableThatGrows(torch.nn.Module):
    """A method replaces the tables by larger ones, as rotary embeddings do."""

    def __init__(self):
        super().__init__()
        self.fill(10)

    def fill(self, length):
        self.length = length
        self.register_buffer("table", torch.arange(length) / 3, persistent=False)
        self.other = torch.arange(length).cos()

    def forward(self, x):
        n = x.shape[2]
        if n > self.length:
            self.fill(n)
        return x * self.table[:n] + self.other[:n]


program("If", cases=LENGTHS, dynamic=LENGTH)(TableThatGrows)


@program("Where", cases=IMAGES, dynamic=IMAGE)
def equal_keys_of_two_sizes(x):
    h, w = x.shape[2:]
    numbers = {h: 1.0, w: 2.0}
    numbers[10] = 3.0
    return x * numbers[h] + numbers[w]


@program("Loop", "If", cases=LENGTHS, dynamic=LENGTH)
def inserted_under_condition(x):
    parts, ends = [x[..., 0]], [x[..., :1]]
    for step in x.unbind(2):
        if step.sum() > 0:
            parts.insert(0, step)
    if x.shape[2] > 9:
        ends.insert(0, x[..., 1:])
    return torch.stack(parts), torch.cat(ends, 2)


@program("If", cases=(UP, DOWN))
def layer_chosen_by_data(x):
    functions = [torch.sin, torch.cos]
    return functions[int(x[0] > 0)](x) * [1.5, 2.5][int(x.sum() > 0)]


@program("If", cases=LENGTHS, dynamic=LENGTH)
def last_columns_in_a_branch(x):
    y = x[..., -1:] if x.shape[2] > 9 else x[..., :1]
    return y * 2 if x.sum() > 0 else x[..., -2:]


@program("If", cases=LENGTHS, dynamic=LENGTH)
def index_from_data(x):
    column = [0, 1, 2][x[0, :, 0].argmax()]
    return x[..., : column + 1] * column


@program("Loop", "If", cases=LENGTHS, dynamic=LENGTH)
def pieces_of_two_sizes(x):
    parts, others, total = [], [], torch.zeros(())
    for piece in x.split(4, 2):
        parts.append(piece.softmax(2))
    for start in range(0, x.shape[2], 5):
        others.append(x[:, :, start : start + 5].flip(2))
        total = total + x[..., start : start + 5].sum()
    return torch.cat(parts, 2), torch.cat(others, dim=-1), total


@program(cases=LENGTHS, dynamic={"x": {2: torch.export.Dim("length", min=2, max=32)}})
def chunks_whose_number_is_known(x):
    chunks, parts = [], []
    for start in range(0, x.shape[2], 32):
        chunks.append((start, min(start + 32, x.shape[2])))
    for start, end in chunks:
        parts += [piece.softmax(2) for piece in x[..., start:end].split(40, 2)]
    return torch.cat(parts, 2)


@program(cases=IMAGES, dynamic=IMAGE)
def padded_by_rows_or_columns(x):
    rows, columns = (-n % 4 for n in x.shape[2:])
    if rows or columns:
        x = torch.nn.functional.pad(x, (0, columns, 0, rows), "reflect")
    return torch.nn.functional.unfold(x, (6, 6), stride=4, padding=1)


@program("If", cases=LENGTHS, dynamic=LENGTH)
def exclusive_or(x):
    return x.flip(2) if True ^ (x.shape[2] % 2 == 0) else x * 2


@program("If", cases=[(torch.rand(2, n, 5),) for n in (7, 4, 5, 3)], dynamic={"x": {1: torch.export.Dim.DYNAMIC}})
def system_for_all_sizes_but_one(x):
    is_minimal = x.shape[1] == 4
    if not is_minimal:
        x = x.mT @ x
    if is_minimal:
        return x.sum(1)
    return torch.linalg.solve(x + torch.eye(5), torch.ones(x.shape[0], x.shape[1]))


@program("If", cases=IMAGES, dynamic=IMAGE)
def fails_where_it_is_empty(x):
    x = x.flip(2) if x.shape[2] > x.shape[3] else x * 2
    side = 1 + int(9 * max(x.shape[2:]) / min(x.shape[2:]))
    x = torch.nn.functional.interpolate(x, (side, side))
    if x.numel() == 0:
        return x.reshape(x.shape[0], 2, 9, 9)
    return x[..., :9, :9]


@program("Loop", cases=[(torch.randn(n),) for n in (9, 1, 2, 20)], dynamic={"x": {0: torch.export.Dim("n")}})
def folded_until_one_element_is_left(x):
    left = x.shape[0]
    while left > 1:
        half = left // 2
        x = torch.cat([x[:half] + x[left - half : left], x[half : left - half]])
        left = left - half
    return x


_LONG = [(sign * torch.ones(n, 2),) for n in (4, 9) for sign in (-1, 1)]


@program("If", cases=_LONG, dynamic={"x": {0: torch.export.Dim.DYNAMIC}})
def a_size_after_a_tensor(x):
    # At the example the sum decides: whether the size was asked at all is not seen in the result.
    rises = x.sum() > 0
    if rises and x.shape[0] > 4:
        x = x * 3
    elif rises:
        x = x + 1
    return x - 0.5


@program("If", cases=_LONG, dynamic={"x": {0: torch.export.Dim.DYNAMIC}})
def equal_truths(x):
    rises, long = bool(x.sum() > 0), x.shape[0] > 4
    if rises == long:
        return x * 3
    return x + 1 if long == False else x - 1  # noqa: E712


_RARE = [(torch.arange(8).reshape(4, 2),), (torch.full((9, 2), 77),), (torch.full((3, 2), 77),)]


@program("If", cases=_RARE, dynamic={"x": {0: torch.export.Dim.DYNAMIC}})
def a_size_after_rare_values(x):
    # No random numbers lead to the condition on the size.
    if (x == 77).all():
        return x * 2 if x.shape[0] > 4 else x * 3
    return x


@program("If", "Where", cases=_RARE, dynamic={"x": {0: torch.export.Dim.DYNAMIC}})
def a_size_that_rare_values_use(x):
    factor = 2 if x.shape[0] > 4 else 3
    if (x == 77).all():
        return x * factor
    return x


@program(cases=[(torch.ones(n, 3),) for n in (1, 4)], dynamic={"x": {0: torch.export.Dim.DYNAMIC}})
def repeated_for_a_batch_of_one(x):
    # At size 1, broadcasting hides that the number of rows was made constant.
    return x + torch.stack([torch.arange(3.0)] * x.shape[0])


@program("If", cases=LENGTHS, dynamic=LENGTH)
def conditions_as_options(x):
    long, rises = x.shape[2] > 9, bool(x.sum() > 0)
    mask = None if x.shape[1] > 3 else torch.ones(1)
    attended = scaled_dot_product_attention(x.mT, x.mT, x.mT, is_causal=mask is not None and x.shape[2] > 11)
    return x.std(2, unbiased=long), x.var(2, x.shape[2] > 11), attended, x.sort(descending=rises).values


@program("If", cases=IMAGES, dynamic=IMAGE)
def halves_of_tiles_after_padding(x):
    height, width = x.shape[2:]
    rows = math.ceil(height / 4)
    rows += 1 if rows % 2 else 0
    if rows * 4 - height > 0 or width % 2 > 0:
        x = pad(x, (0, width % 2, 0, rows * 4 - height))
    halves = x.unfold(2, rows // 2, rows // 2)
    if halves.shape[2] != 8 or halves.shape[-1] != rows / 2:
        raise AssertionError
    weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]] * ((rows * 4 - 1) // rows - 1))
    return halves.unflatten(2, (4, 2)) * weights[:, :, None, None]


@program("If", cases=[(torch.rand(1, 1, 16, 12),), *IMAGES, (torch.rand(1, 1, 15, 8),)], dynamic=IMAGE)
def even_tiles_in_a_branch(x):
    height, width = x.shape[2:]
    is_odd = -(-height // 4) % 2 == 1 or width % 2 == 1
    rows = math.ceil(height / 4)
    if not is_odd:
        rows += 1 if rows % 2 else 0
    x = pad(x, (0, 0, 0, rows * 4 - height))
    if is_odd:
        return x.unfold(2, rows, rows).amax(-1)
    halves = x.unfold(2, rows // 2, rows // 2)
    return halves.amax(-1)[:, :, [0, 1] * (halves.shape[2] // 4)]
