"""Finds numbers that ``forward`` draws with Python's or NumPy's generator, and that would be constants in the model.

torch.export runs ``forward`` once, so that such a number, or a size made of it, is that of one run. A model that
depends on it calls other functions of torch, or has other results, when it is run with other draws.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from opbridge import findings
from opbridge.capture.failures import CaptureFailure
from opbridge.torch_graph.freeze import frozen
from opbridge.torch_graph.random_numbers import own_random_numbers
from opbridge.torch_graph.sources import SourceLine, frames_of_stack, innermost
from opbridge.torch_graph.state import keeping_state

__all__ = ["generator_states", "kept_generators", "refuse_constant_draws"]

_TRIES = 4
"""Two draws of few values may be equal."""

_NAMED = {
    random: (
        "choice",
        "choices",
        "gauss",
        "getrandbits",
        "randint",
        "random",
        "randrange",
        "sample",
        "shuffle",
        "uniform",
    ),
    np.random: ("choice", "normal", "permutation", "rand", "randint", "randn", "random", "shuffle", "uniform"),
}


def generator_states() -> tuple[Any, ...]:
    """The states of Python's and NumPy's generators, which are equal if nothing was drawn in between."""
    numbers: Any = np.random.get_state()
    name, keys, *rest = numbers
    return random.getstate(), (name, keys.tobytes(), *rest)


def refuse_constant_draws(module: torch.nn.Module, example: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    """Raise CaptureFailure if what a module computes depends on numbers drawn with Python or NumPy.

    Args:
        module: The module, whose capture changed the state of one of these generators.
        example: Its example inputs: the positional ones, and those by keyword.
    """
    drawn: list[SourceLine] = []
    with kept_generators(), frozen(module), torch.no_grad():
        first, *others = (_run(module, example, seed, drawn) for seed in range(_TRIES))
    if any(calls != first[0] or not _are_equal(results, first[1]) for calls, results in others):
        place = drawn[0] if drawn else None
        raise CaptureFailure(findings.by_code("python-random").finding(place), details="")


def _run(
    module: torch.nn.Module, example: tuple[tuple[Any, ...], dict[str, Any]], seed: int, drawn: list[SourceLine]
) -> tuple[list[Any], list[Any]]:
    """The functions of torch that a run with these draws calls, with their numbers and shapes, and its results."""
    random.seed(seed)
    np.random.seed(seed)
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, example)
    with keeping_state(module), own_random_numbers(0), _noting(drawn), _Calls() as calls:
        results = pytree.tree_map_only(torch.Tensor, torch.clone, pytree.tree_leaves(module(*args, **kwargs)))
    return calls.made, results


class _Calls(TorchFunctionMode):
    """Notes the calls of torch's functions, with their numbers and shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = pytree.tree_leaves((args, kwargs))
        self.made.append((func, [tuple(one.shape) if isinstance(one, torch.Tensor) else str(one) for one in leaves]))
        return func(*args, **kwargs)


def _are_equal(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(itertools.starmap(_is_equal, zip(first, second, strict=True)))


def _is_equal(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return not isinstance(one, (bool, int, float)) or one == other
    same_shape = isinstance(other, torch.Tensor) and one.shape == other.shape
    return same_shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Restore the states of Python's and NumPy's generators after the block."""
    own, numbers = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(own)
        np.random.set_state(numbers)


@contextlib.contextmanager
def _noting(drawn: list[SourceLine]) -> Iterator[None]:
    """Note the user's lines that call the generators by their modules' names."""
    originals = [(module, name, getattr(module, name)) for module, names in _NAMED.items() for name in names]

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*args: Any, **kwargs: Any) -> Any:
            line = innermost(frames_of_stack(), libraries=True)
            drawn.extend([] if line is None else [line])
            return original(*args, **kwargs)

        return draw

    for module, name, original in originals:
        setattr(module, name, noting(original))
    try:
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)
