"""Branches: ``if``, ``elif``, conditional expressions, early ``return``, boolean operators, assertions."""

# ruff: noqa: SIM108 - the constructs under test

from __future__ import annotations

import torch
from program import DOWN, UP, program
from torch import nn
from torch.nn.functional import interpolate

SMALL = ([0.1, 0.2, 0.3],)
FAST = False


@program("If")
def if_else(x):
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    return y * 2


@program("If")
def if_without_else(x):
    if x.sum() > 0:
        x = x * 2
    return x + 1


@program("If")
def if_on_any(x):
    y = x.clone()
    if (x < -2).any():
        y = y.clamp(min=-2)
    return y


@program("If")
def cond_returns_its_input(x):
    y, z = torch.cond(x.sum() > 0, lambda x: (x, x), lambda x: (x.view(-1), x[:, None].split(1, dim=1)[0][:, 0]), (x,))
    return y + 2 * z


@program("If")
def none_or_tensor(x):
    y = None
    if x.sum() < 0:
        y = x * 2
    x = torch.stack([part + 1 for part in x.unbind()])
    return x if y is None else y


@program("If", cases=(UP, DOWN, ([1.0, -2.0, 0.5],)))
def none_or_tensor_twice(x):
    y = z = None
    if x.sum() < 0:
        y = x * 2
    if x.max() < 0:
        z = x * 3
    return (x if y is None else y) + (1 if z is None else z)


@program("If", cases=(([[3, 4, 1]],), ([[3, 4, 5]],), ([[3, 1], [4, 5]],)), dynamic=({0: "batch", 1: "tokens"},))
class NoMaskIfNothingIsPadded(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 16, padding_idx=1)
        self.layers = nn.ModuleList([nn.MultiheadAttention(16, 2, batch_first=True) for _ in range(2)])

    def forward(self, tokens):
        padding = tokens.eq(1)
        x = self.embedding(tokens)
        if not padding.any():
            padding = None
        for layer in self.layers:
            x = x + layer(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        return x


def padding_of(tokens):
    padding = tokens.eq(1)
    if not padding.any():
        padding = None
    return padding


def masks_of(source, target):
    return padding_of(source), padding_of(target), target.shape[1]


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 16, padding_idx=1)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)


@program("If", cases=(([[3, 4, 1]],), ([[3, 4, 5]],), ([[3, 1], [4, 5]],)), dynamic=({0: "batch", 1: "tokens"},))
class FunctionReturnsNoMask(Layers):
    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.attention(x, x, x, key_padding_mask=padding_of(tokens), need_weights=False)[0]


@program("If", cases=tuple(([[3, 4, a]], [[3, b]]) for a in (1, 2) for b in (1, 2)))
class FunctionReturnsTwoMasksInATuple(Layers):
    def forward(self, source, target):
        padding, own, length = masks_of(source, target)
        x = self.embedding(source)
        y = self.embedding(target)[:, :length]
        y = y if own is None else y.masked_fill(own[..., None], 0.0)
        return self.attention(y, x, x, key_padding_mask=padding)[0]


def scale_of(x, *, limit):
    return x.max() / 2 if x.max() > limit else None


def pair_of(x, limit=1.0, *others, **options):
    scale = scale_of(x, limit=limit, **options)
    x = x * (1 + len(others))
    return x if scale is None else (x, scale)


@program("If", cases=(UP, DOWN, ([0.5, 0.7, 0.9],)))
def function_returns_a_tuple_or_a_tensor(x):
    found = pair_of(x, 0.6, 1, 2)
    if isinstance(found, tuple):
        x, scale = found
        return x / scale
    return found - 1


class Scale(nn.Module):
    def forward(self, x):
        if x.sum() < 0:
            return None
        return x.sum() + torch.arange(len(x))[:, None]


@program("If")
class ModuleReturnsNone(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()

    def forward(self, x):
        scale = self.scale(x)
        scales = [] if scale is None else [scale]
        for one in scales:
            x = (x * one).sum(0)
        return x


def scaled(x, rows, notes):
    scale = scale_of(x, limit=0.0)
    rows.append(x if scale is None else x * scale)
    notes["sum"] = x.sum() if scale is None else scale
    return scale is None


class ListsInArguments(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        scale = scale_of(x, limit=1.0)
        self.seen.append(x if scale is None else x + scale)
        return x - 1 if scale is None else x / scale


@program("If")
class ListsThatAFunctionAppendsTo(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = ListsInArguments()

    def forward(self, x):
        rows, notes = [x], {}
        self.inner.seen.clear()
        plain = scaled(x, rows, notes)
        y = self.inner(x)
        return torch.stack(rows + self.inner.seen).sum(0) * notes["sum"] + y + (1 if plain else 0)


@program("If")
def inner_function_returns_none(x):
    def mask(y):
        if (y > 0).all():
            return None
        return y > 0

    kept = mask(x)
    return x if kept is None else x * kept


@program(
    "If",
    cases=(([[1, 0, 1], [0, 0, 1]],), ([[0, 0, 0], [0, 0, 0]],), ([[1, 1, 1], [1, 1, 0]],)),
    dynamic=({0: "rows"},),
)
def columns_in_one_branch(marked):
    """Attention that some tokens give to all, as in Longformer: only one branch knows the number of columns."""
    rows = marked.shape[0]
    scores = marked.cumsum(1)[..., None] * torch.arange(4.0)
    is_global = (marked > 0).any().item()
    if is_global:
        most = (marked > 0).sum(1).max()
        chosen = torch.arange(most) < (marked > 0).sum(1, keepdim=True)
        scores = torch.cat([chosen.float()[:, None].expand(-1, 3, -1), scores], 2)
    weights = scores.softmax(-1)
    if is_global:
        own = weights.narrow(-1, 0, most)
        result = own.sum(-1) + weights.narrow(-1, most, weights.size(-1) - most).reshape(rows, 3, 4).sum(-1)
        table = own.new_ones(rows, most, 3, 2)
        result = result + table[:, :, 0].sum((1, 2))[:, None]
    else:
        result = weights.reshape(rows, 3, 4).cumsum(-1)[..., 1]
    return result


@program("If", cases=(UP, DOWN, SMALL))
def string_of_a_conditional_expression(x):
    mode = "nearest" if x.sum() > 0 else "linear"
    dtype = torch.float16 if mode == "linear" else x.dtype
    return interpolate(x[None, None], scale_factor=2.0, mode=mode).to(dtype).float()


@program("If", cases=(UP, DOWN, SMALL))
def elif_chain(x):
    if x.sum() > 5:
        y = x.sin()
    elif x.sum() > 0:
        y = x.cos()
    else:
        y = x.exp()
    return y


@program("If", cases=(UP, DOWN, SMALL, ([9.0, 0.0, 0.0],)))
def nested(x):
    if x.sum() > 0:
        if x.max() > 5:
            y = x * 2
        else:
            y = x * 3
            if x.min() > 0.5:
                y = y + 1
    else:
        y = -x
    return y


@program("If")
def early_return(x):
    if x.sum() > 0:
        return x * 2
    y = x.abs()
    return y + 1


@program("If", cases=(UP, DOWN, SMALL))
def two_early_returns(x):
    if x.sum() > 5:
        return x * 2
    x = x + 1
    if x.sum() > 1:
        return x * 3
    return x * 4


@program("If", cases=(UP, DOWN, SMALL))
def return_in_nested_branch(x):
    y = x + 1
    if x.sum() > 0:
        if x.max() > 2:
            return y
        y = y * 5
    return y - 2


@program("If")
def return_before_an_attribute(x):
    """As libraries mark tensors of their own classes."""
    if x.mean() > 0:
        return x
    x = x * 2
    if isinstance(x, torch.nn.Parameter):
        x.mark = 1
    return x + 1


@program("If")
def returns_in_both(x):
    if x.mean() > 0:
        return x.relu()
    else:
        return x.sigmoid()


@program("If")
def returns_two(x):
    if x.sum() > 0:
        return x, x.sum()
    return x * 2, x.prod()


@program("If")
def returns_dict(x):
    out = {"a": x}
    if x.sum() > 0:
        out["b"] = x * 2
    else:
        out["b"] = x * 3
    return out


@program("If")
def identity_branch(x):
    return x if x.sum() > 0 else -x


@program("If", "Where")
def conditional_expression(x):
    y = x.sin() if x.sum() > 0 else x.cos()
    return y * (2 if x.max() > 0 else 3)


@program("If", cases=(UP, DOWN, SMALL))
def nested_conditional_expression(x):
    return x + 1 if x.sum() > 5 else (x + 2 if x.sum() > 0 else x + 3)


@program("If", cases=(UP, DOWN, SMALL))
def and_operator(x):
    if x.sum() > 0 and x.max() > 1:
        return x + 1
    return x - 1


@program("If", cases=(UP, DOWN, SMALL))
def or_operator(x):
    if x.sum() > 5 or x.max() < 0:
        return x + 1
    return x - 1


@program("If")
def not_operator(x):
    if not x.sum() > 0:
        x = x + 10
    return x


@program("If", cases=(UP, DOWN, SMALL))
def mixed_operators(x):
    flag = x.sum() > 5
    if not flag and (x.min() > -1 or x.max() > 7):
        return x * 2
    return x * 3


@program("If", cases=(UP, DOWN))
def short_circuit(x):
    keep = x[x > 0]
    if keep.numel() > 0 and keep[0] > 0.5:
        return x * 2
    return x * 3


@program("If", cases=(UP, DOWN, SMALL))
def chained_comparison(x):
    s = x.sum()
    if 0 < s < 5:
        return x + 1
    return x - 1


@program("If")
def bool_call(x):
    flag = bool((x > 0).all())
    return x * 2 if flag else x


@program("If")
def item_in_condition(x):
    if x.sum().item() > 0:
        return x + 1
    return x - 1


@program("If")
def int_in_condition(x):
    n = int(x.sum())
    if n > 0:
        return x + n
    return x - n


@program("If")
def size_in_condition(x):
    kept = x[x > 0]
    if kept.shape[0] == 0:
        return torch.zeros(1)
    return kept.max().reshape(1)


@program("If")
def different_sizes(x):
    if x.sum() > 0:
        return x[:2]
    return x


@program("If")
def different_dtypes(x):
    if x.sum() > 0:
        y = x.argmax()
    else:
        y = x.max()
    return y + 1


@program("Where")
def number_in_both(x):
    if x.sum() > 0:
        scale, shift = 2, 0.5
    else:
        scale, shift = 3, 1.5
    return x * scale + shift


@program("If")
def number_and_tensor(x):
    penalty = 0.0
    if x.min() < 0:
        penalty = x.abs().sum()
    return x + penalty


@program("If", "Where")
def flag_variable(x):
    flag = False
    if x.sum() > 0:
        flag = True
    if flag:
        x = x * 2
    return x


@program("If")
def same_condition_twice(x):
    positive = x.sum() > 0
    if positive:
        y = x * 2
    z = x + 1
    if positive:
        z = z + y
    return z


@program("If")
def temporary_variable(x):
    if x.sum() > 0:
        kept = x[x > 1]
        x = x + kept.sum()
    return x


@program("If")
def tuple_assignment(x):
    a, b = x, x + 1
    if x.sum() > 0:
        a, b = b, a
    return a * 2 + b


@program("If")
def augmented_assignment(x):
    y = torch.zeros_like(x)
    if x.sum() > 0:
        y += x
        y *= 2
    return y


@program("If")
def in_place_on_input(x):
    x = x * 1
    if x.sum() > 0:
        x.add_(1)
    else:
        x[0] = 7
    return x


@program("If")
def in_place_through_view(x):
    y = x.clone()
    if x.sum() > 0:
        y[1:].mul_(3)
    return y


@program("If")
def masked_assignment(x):
    y = x.clone()
    if (x < 0).any():
        y[y < 0] = 0
    return y + 1


@program("If")
def dict_values(x):
    parts = {"a": x, "b": x + 1}
    if x.sum() > 0:
        parts["a"] = parts["b"] * 2
    return parts["a"] + parts["b"]


@program("If")
def list_item(x):
    parts = [x, x + 1]
    if x.sum() > 0:
        parts[0] = parts[1] * 2
    return parts[0] - parts[1]


@program("If")
def list_of_same_length(x):
    parts = [x]
    if x.sum() > 0:
        parts.append(x * 2)
    else:
        parts.append(x * 3)
    return torch.stack(parts)


@program("If")
def conditional_append(x):
    parts = [x]
    if x.sum() > 0:
        parts.append(x * 2)
    return torch.stack(parts)


@program("If")
def conditional_append_cat(x):
    parts = [x]
    for k in range(3):
        if x[k] > 0:
            parts.append(x[k : k + 1] * 2)
    return torch.cat(parts)


def _helper(x):
    if x.max() > 1:
        return x - x.max()
    return x


@program("If")
def function_called_from_branch(x):
    y = x + 1
    if x.sum() > 0:
        y = _helper(y)
    return y


@program("If")
def helper_function(x):
    return _helper(x) * 2


@program("If")
def closure(x):
    bias = x.sum()

    def shifted(y):
        if bias > 0:
            return y + bias
        return y - bias

    return shifted(x * 2)


@program("If")
def closure_with_nonlocal(x):
    total = x * 0

    def add(y):
        nonlocal total
        if y.sum() > 0:
            total = total + y

    add(x)
    add(x * 2)
    return total


@program("If")
def default_argument(x):
    def clipped(y, limit=2.0):
        if y.max() > limit:
            y = y.clamp(max=limit)
        return y

    return clipped(x) + clipped(x, limit=0.5)


@program("If")
def in_lambda(x):
    choose = lambda y: y * 2 if y.sum() > 0 else y * 3  # noqa: E731
    return choose(x)


def _recursive(x, depth):
    if depth == 0:
        return x
    if x.sum() > 4:
        return _recursive(x / 2, depth - 1)
    return x


@program("If", cases=(UP, DOWN, ([30.0, 30.0, 30.0],)))
def bounded_recursion(x):
    return _recursive(x, 3)


@program("If")
def with_statement(x):
    with torch.no_grad():
        if x.sum() > 0:
            return x * 2
    return x


@program()
def assertion(x):
    assert x.abs().sum() >= 0, "never"
    return x * 2


@program()
def raises_only(x):
    if torch.isnan(x).any():
        raise ValueError(f"{x} has NaN")
    return x * 2


@program()
def prints_values(x):
    print("mean %.3f of %s" % (x.mean().item(), x.tolist()))  # noqa: UP031 - as older code has it
    return x * 2


@program()
def prints_formatted_values(x):
    print(f"{x.max().item():.1e}")
    print(f"{x.mean():.3f} of {x.shape[0]:02d}")
    return x * 2


@program()
def prints_only(x):
    if x.sum() > 0:
        print("positive")
    return x * 2


@program("If")
def raises_in_else(x):
    if x.sum() > -100:
        y = x * 2
        if y.max() > 0:
            y = y + 1
    else:
        raise ValueError("too small")
    return y


@program("If")
def torch_equal(x):
    if torch.equal(x, x.abs()):
        return x * 2
    return x


@program("If", cases=(([1.0, 2.0, 3.0], 1), ([1.0, 2.0, 3.0], 4)))
def member_of_tuple(x, n):
    if n in (1, 2, 3):
        return x * 2
    return x


@program("If", cases=(UP, DOWN))
def minimum_of_tensors(x):
    top = max(x[0], x[1], x[2])
    if min(x[0], top) > 0:
        return x + top
    return x - top


@program("If", cases=(UP, DOWN, ([1.0, -1.0, 1.0],)))
def any_and_all(x):
    if any(v < 0 for v in x):
        x = x - 1
    if all(v > 0 for v in x):
        x = x + 5
    return x


@program("If")
class Method(nn.Module):
    def __init__(self):
        super().__init__()
        self.near, self.far = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return self.head(x) + 1

    def head(self, x):
        if x.sum() > 0:
            return self.near(x)
        return self.far(x)


class _Base(nn.Module):
    def forward(self, x):
        return x * 2


@program("If")
class Super(_Base):
    def forward(self, x):
        if x.sum() > 0:
            x = super().forward(x)
        return x


@program("If")
class Submodules(nn.Module):
    """The branch is in a module that is called twice."""

    def __init__(self):
        super().__init__()
        self.inner = Method()

    def forward(self, x):
        return self.inner(self.inner(x))


@program("If")
class Attribute(nn.Module):
    """A plain attribute of the module is assigned in a branch, and read."""

    def forward(self, x):
        self.scale = x.new_ones(())
        if x.sum() > 0:
            self.scale = x.max()
        return x * self.scale


@program("If")
class AttributeOfAnotherSize(nn.Module):
    """A method that is called in a branch replaces an attribute by a longer tensor."""

    def keep(self, x):
        self.rows = x * 2

    def forward(self, x):
        self.rows = x.new_ones(2)
        if x.sum() > 0:
            self.keep(x)
        return x * self.rows.sum()


class _Seen(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(2))
        self.count = 2

    def add(self, x):
        self.rows = torch.cat([self.rows, x])
        self.count = self.rows.shape[0]

    def forward(self, x):
        return x - self.rows.sum() / self.count


@program("If")
class BufferOfAnotherSize(nn.Module):
    """The buffer's size, and a number made of it, are known at run time only."""

    def __init__(self):
        super().__init__()
        self.seen = _Seen()

    def forward(self, x):
        self.seen.rows, self.seen.count = x.new_zeros(2), 2
        if x.sum() > 0:
            self.seen.add(x)
        return self.seen(x)


@program("If")
class PlainTensorAttribute(nn.Module):
    """A tensor that is neither a parameter nor a buffer is read in a branch."""

    def __init__(self):
        super().__init__()
        self.shift = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x):
        if x.sum() > 0:
            x = x + self.shift
        return x * torch.tensor([2.0, 2.0, 2.0])


@program("If")
def chooses_a_function(x):
    act = torch.sin
    if x.sum() > 0:
        act = torch.cos
    return act(x)


@program()
def decided_by_a_flag(x):
    scale = None
    if x.sum() > 0 and FAST and callable(x.sum):
        scale = x.sum()
    if x.sum() < 0 or not FAST or callable(x.sum):
        scale = 2
    return x if scale is None else x * scale


@program("If")
def variables_that_nothing_reads_after_the_branch(x):
    part = x + 1
    if x.sum() > 0:
        part = part.reshape(3, 1)
        rest = [part, 2 * part]
        y = rest[1].sum(1)
    else:
        part, rest = (part, part * 2), "none"
        y = part[1].cos()
    return y


@program("If")
def variable_that_a_function_reads(x):
    y = x

    def doubled():
        return y * 2

    if x.sum() > 0:
        y = x + 1
    return doubled()


@program("If", "Loop")
def variable_that_the_next_iteration_reads(x):
    y, total = x[0], x.sum() * 0
    for row in range(int(x.abs().sum()) % 5 + 1):
        total = total + y * row
        if total > 0.5:
            y = -y * 2
    return total


@program("If", cases=((*UP, True), (*DOWN, False)))
def branch_in_one_line(x, use):
    # fmt: off
    if use: x = x.cumsum(0)  # noqa: E701
    # fmt: on
    return x * 2


@program("If")
def number_of_data_inside(x):
    mean = x.mean().item()
    return x * mean if x.sum() > 0 else x.cumsum(0) - mean


@program("If", cases=(UP, DOWN, ([1.0, -1.0, 0.5],)))
def flag_that_is_tested_again(x):
    positive, scale = torch.equal(x, x.abs()), 1.0

    def scaled(y, positive):
        if not positive:
            return y.abs().cumsum(0)
        return twice(y, positive)

    def twice(y, positive):
        if positive:
            y = y + 1
        return y * 2

    if x.sum() > 0 and positive:
        scale = 2.5
    return scaled(x, positive) * scale, (x > 0) * scale


@program("Loop", "If", cases=(UP, DOWN, ([5.0, -1.0, 0.5],)))
def float_of_the_iteration(x):
    added = 0.0
    for turn in range(3):
        added = 0.5 * 10**turn
        x = x + added * (x > 0)
        print(f"added {added:.1e}")
        if not torch.any(x > 1):
            return x.cumsum(0)
    return x * added


@program("If", cases=(UP, DOWN))
def lambda_beside_a_condition(x, given=None):
    call = given or (lambda function, *values: function(*values))
    return call(lambda y: y.cumsum(0) if y.sum() > 0 else y, x), x.mean().item(), torch.equal(x, x.abs())


@program("If", cases=(UP, DOWN, ([1.0, -1.0, 2.0, 0.5],)), dynamic={"x": {0: "n"}})
def sizes_that_are_equal_on_either_path(x):
    def windows(chosen):
        if chosen.shape[0] == 0:
            return torch.empty(0, 5, 4), torch.empty(0, 5, 4)
        rows = chosen[:, None, None] + torch.arange(20.0).view(5, 4)
        return rows, rows * 2

    a, b = windows(x[x > 0])
    if a.shape[0] == 0:
        return a.flatten(1)[:, :10]
    a, b = a.view(a.shape[0], -1, 2), b.view(a.shape[0], -1, 2)
    if b.shape[1] > 8:
        a = a.flatten(1)
    return (a.view(-1, 10, 2) @ b.mT).sum(2)


@program("If", cases=(UP, DOWN))
class StateOfACalledMethodInABranch(nn.Module):
    def change(self, x):
        self.state = self.state * 2 + x

    def forward(self, x):
        self.state = x + 1
        if x.sum() > 0:
            self.change(x)
        return self.state


@program("If", "Where", cases=[UP, DOWN, ([-1.0, 2.0, 3.0],), ([-1.0, -2.0, 9.0],)])
def match_on_a_number(x):
    y = x + 0.5
    match int((x > 0).sum()):
        case 0 | 3:
            return y * 2
        case n if n < 2:
            y = y * n
        case other:
            y = y - other
    return y


@program("If")
def match_on_a_tuple(x, kind=None):
    match (bool(x.sum() > 0), x.shape[0] > 4):
        case (True, long):
            y = x * 3 if long else x
        case (False, _):
            y = x - 1
    match kind:
        case None:
            return y
        case {"scale": scale}:
            return y * scale


@program("If")
def is_true(x):
    rises = bool(x[-1] > x[0])
    y = x * 2 if rises is True else x - 1
    return y if rises is not False else y.flip(0)


@program("If", cases=(UP, DOWN, ([9.0, 8.0, 7.0],), ([-1.0, 3.0, -4.0],)))
def assigned_in_conditions(x):
    if (total := x.sum()) > 0 and (mean := x.mean()) < 5:
        return x * total * mean
    elif (first := x[0]) > 0 or (first := x[1].abs()) > 2:
        return x * first
    y = a if (a := x.max()) > 2 else (b := x.min()) * 2 + b
    return x - torch.maximum(total, (c := y * 2)) + c


@program("If", "Loop", cases=(UP, DOWN, ([0.0, 0.0, 0.0],)))
def assigned_in_expressions_in_order(x):
    y = x * 2
    if y.sum() + (y := x + 1).sum() > y.mean():
        y = y - 1
    z = y + (y := y * 3) + y
    while torch.maximum(y.abs().sum(), (y := y / 2).sum()) > 1:
        z = z + y
    return z, y


@program("If", cases=(([1.0, 1.0, 3.0, 2.0],), ([1.0, 0.0, 0.0, 0.0],), ([0.0, -1.0, -1.0, -2.0],)))
def same_size_after_branches(x):
    """The area under a curve, whose coordinates are as many after either branch as before."""
    kept = torch.where(x[1:] - x[:-1])[0]
    a = torch.cat([torch.zeros(1), x[kept]])
    b = torch.cat([torch.zeros(1), x[kept + 1]])
    if a[-1] <= 0:
        u = torch.zeros_like(a)
    else:
        u = a / a[-1]
    if b[-1] <= 0:
        v = torch.zeros_like(a)
    else:
        v = b / b[-1]
    return torch.trapz(u, v)
