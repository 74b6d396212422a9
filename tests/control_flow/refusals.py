"""Programs that can't be converted, and what the error says."""

# ruff: noqa: SIM108 - the constructs under test

from __future__ import annotations

import torch
from program import counts, refused


@refused("is a generator")
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


@refused("'y' is a tensor of shape (3,) after one branch and None after the other")
def none_or_tensor(x):
    y = None
    if x.sum() < 0:
        y = x * 2
    return x if y is None else y


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
        x = torch.cat([x, x[:1]])
    return x


@refused("the list 'rows' grows in a loop without a largest number of iterations")
def unbounded_append(x):
    rows = []
    while x.abs().sum() > 1:
        x = x / 2
        rows.append(x)
    return torch.stack(rows)


@refused("'rows' is a list that grows, and that the loop also reads", cases=counts(3, 1))
def reads_growing_list(x, n):
    rows = [x]
    for _ in range(n):
        rows.append(rows[-1] * 2 + rows[0])
    return torch.stack(rows)


@refused("the list 'rows' gets elements that are not tensors", cases=counts(3, 1))
def list_of_numbers(x, n):
    rows = []
    for i in range(n):
        rows.append(i * 2)
    return x + torch.tensor(rows).sum()


@refused("'halves' is a generator")
def error_that_is_raised_anew(x):
    def halves(y):
        while y.sum() > 1:
            y = y / 2
            yield y

    try:
        return sum(halves(x))
    except Exception as error:
        raise RuntimeError("out of memory") from error
