"""Rows with the same key, found by sorting."""

import dataclasses

import torch
from torch import Tensor

__all__ = ["Groups", "group"]


@dataclasses.dataclass(frozen=True)
class Groups:
    """The groups of n rows with equal keys, by rising key.

    Attributes:
        order: (n,): the rows, group after group; in a group, by rising row.
        group: (n,): the group of each row of ``order``.
        begins: (groups,): the position in ``order`` where each group begins.
        sizes: (groups,): the number of rows of each group.
        keys: (groups,): the key of each group.
    """

    order: Tensor
    group: Tensor
    begins: Tensor
    sizes: Tensor
    keys: Tensor


def group(keys: Tensor) -> Groups:
    """Group rows by their keys (n,), integers that are not negative."""
    ordered, order = torch.sort(keys, stable=True)
    count = keys.shape[0]
    is_first = torch.nn.functional.pad(ordered, (1, 0), value=-1)[:count] != ordered
    begins = is_first.nonzero().squeeze(1)
    # The position of the next group, and of the end for the last one.
    ends = torch.cat([begins, torch.full((1,), count)])[1:]
    return Groups(order, is_first.to(torch.int64).cumsum(0) - 1, begins, ends - begins, ordered[begins])
