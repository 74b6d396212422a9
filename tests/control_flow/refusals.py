"""Programs that can't be converted, and what the error says."""

# ruff: noqa: SIM108 - the constructs under test

from __future__ import annotations

import contextlib
import math

import torch
from program import counts, refused


@refused("the list of what the generator yields grows in a loop without a largest number of iterations")
def generator(x):
    def halves(y):
        while y.sum() > 1:
            y = y / 2
            yield y

    for half in halves(x):
        x = x + half
    return x


@refused("raises an error inside a try statement")
def error_as_a_branch(x):
    try:
        if x.sum() > 0:
            raise ValueError("positive")
        return x
    except ValueError:
        return x * 2


@refused("the value that is returned is None after one branch and a tensor of shape (3,) after the other")
def none_or_tensor_of_the_model(x):
    if (x > 0).all():
        return None
    return x


@refused("the values that its branches return differ in form, and a tensor is changed in place before it")
def none_or_tensor_after_a_change_in_place(x):
    def scale(y):
        return None if y.sum() > 0 else y

    x += 1
    found = scale(x)
    return x if found is None else found * 2


@refused("'y' has (3,) and () as its shapes")
def different_ranks(x):
    if x.sum() > 0:
        y = x
    else:
        y = x.sum()
    return y * 2


@refused("'x' changes its shape", cases=counts(3, 1))
def growing_tensor(x, n):
    for _ in range(n):
        x = torch.cat([x, x.flip(0)])
    return x


@refused("the list 'rows' grows in a loop without a largest number of iterations")
def unbounded_append(x):
    rows = []
    while x.abs().sum() > 1:
        x = x / 2
        rows.append(x)
    return torch.stack(rows)


@refused("The model returns a list from", cases=counts(3, 1))
def returned_list(x, n):
    rows = []
    for i in range(n):
        rows.append(x * i)
    return x, rows


@refused("the list 'rows' gets elements that are not made of tensors and numbers", cases=counts(3, 1))
def list_of_tuples_with_a_text(x, n):
    rows = []
    for i in range(n):
        rows.append((x, i, "a"))
    return torch.stack([row for row, _, _ in rows])


@refused("a statement that changes one of its elements, which are tuples, dicts or objects", cases=counts(3, 1))
def dict_that_changes_in_a_list(x, n):
    rows = []
    for i in range(n):
        rows.append({"x": x, "i": i})
    for row in rows:
        row["x"] = row["x"] * 2
    return torch.stack([row["x"] for row in rows])


@refused("the list 'rows' gets tensors of different sizes", cases=counts(3, 1))
def list_of_tensors_without_a_largest_size(x, n):
    rows = []
    for i in range(n):
        rows.append(torch.ones(x.clamp(min=0).sum().long().item() + i))
    return torch.cat(rows)


@refused("used by code that takes tensors of one size", cases=counts(3, 1))
def list_of_tensors_of_different_sizes(x, n):
    rows = []
    for i in range(n):
        rows.append(x[x > i])
    return torch.stack(rows)


@refused("an iteration changes an element of a list in place", cases=counts(3, 1))
def elements_that_change_in_place(x, n):
    rows = [x * 2]
    for i in range(n):
        rows.append(x * i)
    for row in rows:
        row += 1
    return torch.stack(rows)


@refused("'rows' is a list that grows, and that also loses elements", cases=counts(3, 1))
def list_that_loses_elements(x, n):
    rows = [x]
    for _ in range(n):
        rows.pop()
        rows += [x, x * 2]
    return torch.stack(rows)


@refused("the list 'rows' grows in a loop whose number of iterations is computed in a branch", cases=counts(3, 1))
def list_of_a_loop_of_a_number_in_a_branch(x, n):
    rows = [x]
    if n >= 1:
        for i in range(int(n) - 1):
            rows.append(x * i)
    return sum(rows)


@refused("is used by 'block_diag'", cases=counts(3, 1))
def element_that_is_not_one(x, n):
    rows = []
    for i in range(n):
        rows.append(x * i)
    return torch.block_diag(*rows)


@refused("the list of what the generator yields grows in a loop without a largest number of iterations")
def error_that_is_raised_anew(x):
    def halves(y):
        while y.sum() > 1:
            y = y / 2
            yield y

    try:
        return sum(halves(x))
    except Exception as error:
        raise RuntimeError("out of memory") from error


@refused("an iteration changes a tensor in place and also uses a view of it", cases=counts(3, 1))
def a_view_that_a_loop_changes(x, n):
    y = torch.arange(6.0)
    rest = y[1:4]
    for i in range(n):
        rest[i] += y[i]
    return x + y[:3]


@refused("`except ZeroDivisionError` catches an error that it raises for some numbers")
def caught_division_by_zero(x):
    try:
        factor = 1 / x.sum().item()
    except ZeroDivisionError:
        factor = 0.0
    return x * factor


@refused("`except ValueError` catches an error", cases=counts(3, 1))
def caught_error_of_math(x, n):
    try:
        factor = math.log(float(n))
    except (TypeError, ValueError):
        factor = 0.0
    return x * factor


@refused("`except LookupError` catches an error", cases=counts(1, 2))
def caught_index(x, n):
    try:
        first = x[int(n)]
    except LookupError:
        first = x[0]
    return x * first


@refused("the generator 'sums' uses the value of a yield")
def generator_that_is_sent_values(x):
    def sums(y):
        if y.sum() > 0:
            scale = yield y
            yield y * scale

    values = sums(x)
    return next(values) + values.send(2)


@refused("'doubled' is a generator that other code runs step by step")
def context_manager(x):
    @contextlib.contextmanager
    def doubled(y):
        if y.sum() > 0:
            y *= 2
        yield y

    with doubled(x + 1) as y:
        return y


@refused("a generator yields more than 4096 values")
def generator_without_end(x):
    def forever(y):
        if y.sum() > 0:
            y = y * 2
        while True:
            yield y

    return sum(y for y, _ in zip(forever(x), range(3), strict=False))
