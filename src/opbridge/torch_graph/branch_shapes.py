"""The shapes of the results of branches and loops, which torch computes by running them with tensors without data.

The internals of torch that this needs: of the operators ``cond`` and ``while_loop``, the ``python_key_table`` with its
kernel for ``FakeTensorMode``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from opbridge.torch_graph.size_branches import join_equal_sizes, state_size
from opbridge.torch_graph.subgraphs import facts_of_one_path

__all__ = ["apart", "shapes_of_branches_apart"]


@contextlib.contextmanager
def shapes_of_branches_apart(*, chosen_sizes: bool = False) -> Iterator[None]:
    """Inside the block, a branch or a loop that is run for its shapes states nothing about sizes elsewhere.

    Sizes after a branch that are equal on either path are one size, as they were where the branch was captured.

    Args:
        chosen_sizes: Whether the other sizes after a branch are ``a if condition else b``; otherwise, they are unknown.
    """
    with contextlib.ExitStack() as stack:
        for operator in (torch.ops.higher_order.cond, torch.ops.higher_order.while_loop):
            kernel = _running_apart(operator.python_key_table[FakeTensorMode], chosen_sizes)
            stack.enter_context(mock.patch.dict(operator.python_key_table, {FakeTensorMode: kernel}))
        yield


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, after which everything that it has stated about sizes is forgotten."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with facts_of_one_path():
            return function(*args, **kwargs)

    return run


def _running_apart(kernel: Callable[..., Any], chosen_sizes: bool) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        paths: list[Any] = []

        def noted(function: Callable[..., Any]) -> Callable[..., Any]:
            def path(*own: Any) -> Any:
                paths.append(apart(function)(*own))
                return paths[-1]

            return path

        results = kernel(*(noted(one) if callable(one) else one for one in args), **kwargs)
        if kernel.__module__ == "torch._higher_order_ops.cond" and len(paths) == 2:
            found, *ends = (list(filter(torch.is_tensor, pytree.tree_leaves(one))) for one in (results, *paths))
            symbols = _symbols((args, kwargs))

            def is_outside(size: Any) -> bool:
                return _symbols(size) <= symbols

            _mode, predicate, *_ = args
            for size, pair in join_equal_sizes(found, list(zip(*ends, strict=True)), is_outside):
                if chosen_sizes and all(map(is_outside, pair)):
                    state_size(predicate, size, *pair)
        return results

    return run


def _symbols(values: Any) -> set[Any]:
    """The symbols in sizes of tensors and in numbers."""
    leaves = pytree.tree_leaves(values)
    sizes = [size for leaf in leaves for size in (leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,))]
    return {symbol for size in sizes if isinstance(size, torch.SymInt) for symbol in size.node.expr.free_symbols}
