"""Loops in which a tensor loses or gains elements.

The non-maximum suppression of detectors, rows that are done, caches of keys and values, and beam search.
"""

import torch
from program import counts, program
from torch import nn

DYNAMIC = torch.export.Dim.DYNAMIC
ROWS = {"boxes": {0: DYNAMIC}, "scores": {0: DYNAMIC}}


def _detections(n):
    generator = torch.Generator().manual_seed(n)
    corner = torch.rand(n, 2, generator=generator) * 20
    size = torch.rand(n, 2, generator=generator) * 15 + 3
    return torch.cat([corner, corner + size], 1), torch.rand(n, generator=generator)


CASES = [_detections(n) for n in (9, 1, 2, 30)]


def _overlaps(box, boxes):
    area, areas = (box[2:] - box[:2]).prod(), (boxes[:, 2:] - boxes[:, :2]).prod(1)
    sides = torch.minimum(box[2:], boxes[:, 2:]) - torch.maximum(box[:2], boxes[:, :2])
    common = sides.clamp(min=0).prod(1)
    return common / (area + areas - common)


@program("Loop", "If", cases=CASES, dynamic=ROWS)
def suppression_in_a_list(boxes, scores):
    order, kept = scores.argsort(descending=True), []
    while order.numel() > 0:
        first = order[0]
        kept.append(first)
        if order.numel() == 1:
            break
        rest = order[1:]
        order = rest[_overlaps(boxes[first], boxes[rest]) <= 0.5]
    return torch.stack(kept)


@program("Loop", "If", cases=CASES, dynamic=ROWS)
def soft_suppression(boxes, scores):
    boxes, scores = boxes.clone(), scores.clone()
    for i in range(boxes.shape[0]):
        if i != boxes.shape[0] - 1:
            largest, place = scores[i + 1 :].max(0)
            if scores[i] < largest:
                other = place + i + 1
                box, score = boxes[i].clone(), scores[i].clone()
                boxes[i], scores[i] = boxes[other], scores[other]
                boxes[other], scores[other] = box, score
            scores[i + 1 :] = scores[i + 1 :] * torch.exp(-2 * _overlaps(boxes[i], boxes[i + 1 :]) ** 2)
    return boxes, scores


@program("Loop", "If", cases=CASES, dynamic=ROWS)
def suppression_in_a_tensor(boxes, scores):
    kept, count = torch.zeros(scores.size(0), dtype=torch.int64), 0
    order = scores.argsort()[-20:]
    while order.numel() > 0:
        last = order[-1]
        kept[count] = last
        count += 1
        if order.size(0) == 1:
            break
        order = order[:-1]
        overlaps = _overlaps(boxes[last], boxes[order])
        order = order[overlaps.le(0.5)]
    return kept[:count]


@program("Loop", cases=CASES, dynamic=ROWS)
def suppression_of_boxes_and_scores(boxes, scores):
    scores, order = scores.sort(descending=True)
    boxes, best, certain = boxes[order], [], []
    while boxes.shape[0]:
        best.append(boxes[0])
        certain.append(scores[0])
        kept = _overlaps(boxes[0], boxes) < 0.5
        boxes, scores = boxes[kept], scores[kept]
    return torch.stack(best), torch.stack(certain)


@program("Loop", cases=CASES, dynamic=ROWS)
def merged_boxes(boxes, scores):
    found = torch.cat([boxes, scores[:, None]], 1)[scores.argsort(descending=True)]
    merged = []
    while found.size(0):
        same = _overlaps(found[0, :4], found[:, :4]) > 0.5
        weights = found[same, 4:]
        merged += [(weights * found[same, :4]).sum(0) / weights.sum()]
        found = found[~same]
    return torch.stack(merged)


@program("Loop", cases=[(torch.randn(n, 3), n) for n in (5, 1, 8)], dynamic=({0: DYNAMIC}, None))
def rows_that_are_done(x, n):
    total = torch.zeros(3)
    for _ in range(n):
        x = x * 1.5
        total = total + x.sum(0)
        x = x[x.abs().amax(1) < 3]
    return total, x


@program("Loop", cases=[(torch.rand(n, 4),) for n in (5, 1, 8)], dynamic=({0: DYNAMIC},))
class ColumnsAndTheirNames(nn.Module):
    def forward(self, x):
        x, names = x.T, torch.arange(x.shape[0])
        others = torch.ones(x.shape[1])
        last = names[:1]
        while x.sum() > 1:
            last = names[x.sum(0).argmax()].reshape(1)
            kept = names != last
            x, names = x[:, kept] * 0.9, names[kept]
            others = others[: others.shape[0] - 1]
        return x, names, last, others.sum()


class Decoder(nn.Module):
    """Greedy decoding with caches that grow, until each row has ended."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(13, 8), nn.Linear(8, 13)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, tokens):
        x = self.embedding(tokens)
        keys, values, token, steps = self.key(x), self.value(x), tokens[:, -1], 0
        while steps < 6:
            x = self.embedding(token)[:, None]
            keys, values = torch.cat([keys, self.key(x)], 1), torch.cat([values, self.value(x)], 1)
            attended = nn.functional.scaled_dot_product_attention(self.query(x), keys, values)
            token = self.head(attended[:, 0]).argmax(-1)
            tokens = torch.cat([tokens, token[:, None]], 1)
            steps += 1
            if (token == 1).all():
                break
        return tokens, keys.sum(1)


TOKENS = [
    (torch.randint(2, 13, shape, generator=torch.Generator().manual_seed(0)),) for shape in ((2, 3), (4, 1), (1, 5))
]
program("Loop", cases=TOKENS, dynamic={"tokens": {0: DYNAMIC, 1: DYNAMIC}})(Decoder)


class Beams(nn.Module):
    """Beam search, which takes the tokens of another beam over."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.cell, self.head = nn.Embedding(11, 8), nn.GRUCell(8, 8), nn.Linear(8, 11)

    def forward(self, state):
        rows, beams, step = state.size(0), 3, 0
        state = state.repeat_interleave(beams, 0)
        scores = torch.full((rows, beams), -1e9)
        scores[:, 0] = 0
        tokens = torch.zeros(rows * beams, 1, dtype=torch.int64)
        done = torch.zeros(rows * beams, dtype=torch.bool)
        while step < 7 and not bool(done.all()):
            state = self.cell(self.embedding(tokens[:, -1]), state)
            steps = self.head(state).log_softmax(-1)
            steps = torch.where(done[:, None], torch.where(torch.arange(11) == 1, 0.0, -1e9), steps)
            scores, best = (scores.view(-1, 1) + steps).view(rows, -1).topk(beams, 1)
            source = (best // 11 + torch.arange(rows)[:, None] * beams).view(-1)
            token = (best % 11).view(-1)
            tokens = torch.cat([tokens[source], token[:, None]], 1)
            state, done = state[source], done[source] | (token == 1)
            step += 1
        return tokens.view(rows, beams, -1)[:, 0], scores[:, 0]


STATES = [(torch.randn(n, 8, generator=torch.Generator().manual_seed(n)),) for n in (2, 1, 4)]
program("Loop", "If", cases=STATES, dynamic={"state": {0: DYNAMIC}})(Beams)


@program("Loop", cases=counts(3, 0, 1, 6))
def rows_that_are_added_and_changed(x, n):
    x = x[:, None]
    for i in range(n):
        x = torch.cat([x * 1.01, x[:, -1:] + i], 1)
        if x.mean() > 9:
            break
    return x, x.shape[1]


@program("Loop", cases=[([[0.5, 1.0]],), ([[30.0, 40.0]],), ([[0.1, 0.0], [0.0, 0.0]],)], dynamic={"x": {0: DYNAMIC}})
def rows_as_many_as_before(x):
    y, i = x, 0
    while y.abs().sum() < 50 and i < 5:
        y = torch.cat([y, x * i]).flip(0)
        i += 1
    return y


@program("Loop", "If", cases=CASES, dynamic=ROWS)
def suppression_that_adds_to_a_tensor(boxes, scores):
    order = scores.argsort(descending=True)
    kept, places = boxes[order[:1]], torch.zeros(0, dtype=torch.int64)
    for i in range(1, boxes.shape[0]):
        box = boxes[order[i]]
        if _overlaps(box, kept).max() < 0.3:
            kept, places = torch.cat([kept, box[None]]), torch.cat([places, order[i : i + 1]])
    return kept, places


@program("Loop", "If", cases=CASES, dynamic=ROWS)
def stack_that_grows_and_shrinks(boxes, scores):
    stack = boxes[:1]
    for box in boxes[1:]:
        if box[0] > 8:
            stack = torch.cat([stack, box[None]])
        elif stack.shape[0] > 1:
            stack = torch.cat([stack[:-2], (stack[-2] + stack[-1])[None]])
    return stack.sum(0) + scores.sum()


@program("Loop", "If", cases=CASES, dynamic=ROWS)
def stack_until_it_is_empty(boxes, scores):
    stack, total, count = boxes[:1], scores[:1], 0
    while stack.shape[0] > 0:
        last, stack = stack[-1], stack[:-1]
        total, count = total + last.sum(), count + 1
        if last[0] > 4 and count < 4:
            stack = torch.cat([stack, last[None] - 5])
    return total


@program("Loop", "If", cases=[CASES[0], CASES[2], CASES[3]], dynamic=ROWS)
def numbers_that_pass_in_each_iteration(boxes, scores):
    passed, before = scores[:1], 0
    while before < boxes.shape[0] and passed.shape[0] < 6:
        if scores[before] > 0.5:
            passed = torch.cat([passed, boxes[before][boxes[before] > passed.mean()]])
        passed = passed * 0.9
        before += 1
    return passed
