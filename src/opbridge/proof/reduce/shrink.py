"""Shrinks the arrays and simplifies the numbers of a failing model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.proof.reduce.problem import Problem

__all__ = ["shrink"]

_MOST_SIZES = 8
_SMALL_ENOUGH = 16
"""The number of elements up to which an array is readable and keeps its sizes."""


def shrink(problem: Problem, fails: Callable[[Problem], bool]) -> Problem:
    """Make arrays smaller and numbers rounder for as long as the model still fails.

    Args:
        problem: A model that fails.
        fails: A function that returns whether a changed problem still fails.
    """
    for size in _sizes(problem)[:_MOST_SIZES]:
        problem = _smaller(problem, size, fails)
    for simpler in _SIMPLER:
        candidate = _with_arrays(problem, _rounded(simpler))
        if not _same(candidate, problem) and fails(candidate):
            return candidate
    return problem


_SIMPLER: tuple[Callable[[np.ndarray], Any], ...] = (
    np.ones_like,
    np.rint,
    lambda array: np.round(array, 1),
    lambda array: np.round(array, 3),
)


def _smaller(problem: Problem, size: int, fails: Callable[[Problem], bool]) -> Problem:
    """Replace one size by the smallest that still fails, first in all arrays, then in one array at a time."""
    for new in _new_sizes(size):
        candidate = _with_arrays(problem, _cut_to(size, new))
        if fails(candidate):
            return candidate
    for name in problem.feeds:
        for new in _new_sizes(size):
            candidate = _with_arrays(problem, _cut_to(size, new, only=name))
            if not _same(candidate, problem) and fails(candidate):
                problem = candidate
                break
    return problem


def _new_sizes(size: int) -> list[int]:
    return [new for new in dict.fromkeys((1, 2, 3, 4, size // 2)) if new < size]


def _sizes(problem: Problem) -> list[int]:
    """The sizes of arrays that are not small, in descending order."""
    arrays = [array for _, array in _arrays(problem) if array.size > _SMALL_ENOUGH]
    return sorted({size for array in arrays for size in array.shape if size > 1}, reverse=True)


def _arrays(problem: Problem) -> Iterator[tuple[str, np.ndarray]]:
    yield from problem.feeds.items()
    for name, value in problem.model.graph.initializers.items():
        if value.const_value is not None and value.dtype is not ir.DataType.STRING:
            yield name, value.const_value.numpy()


Change = Callable[[str, np.ndarray], np.ndarray]


def _cut_to(size: int, new: int, only: str = "") -> Change:
    """A change that cuts every array, or only the named one."""
    return lambda name, array: _cut(array, size, new) if only in ("", name) else array


def _rounded(rule: Callable[[np.ndarray], Any]) -> Change:
    """A change that simplifies the numbers of every floating-point array."""
    return lambda name, array: np.asarray(rule(array)).astype(array.dtype) if array.dtype.kind == "f" else array


def _cut(array: np.ndarray, size: int, new: int) -> np.ndarray:
    """The first ``new`` elements of every axis of this size; in a list of sizes, the number itself is replaced."""
    if array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= _SMALL_ENOUGH:
        return np.where(array == size, array.dtype.type(new), array)
    return np.ascontiguousarray(array[tuple(slice(new) if n == size else slice(None) for n in array.shape)])


def _with_arrays(problem: Problem, change: Change) -> Problem:
    """The problem with every array changed, and the declared shapes adapted."""
    model = problem.model.clone()
    feeds = {name: change(name, array) for name, array in problem.feeds.items()}
    for name, value in model.graph.initializers.items():
        if value.const_value is None or value.const_value.dtype is ir.DataType.STRING:
            continue
        old = value.const_value.numpy()
        new = change(name, old)
        if new is not old:
            value.const_value = ir.tensor(new, dtype=value.const_value.dtype, name=name)
            value.shape = ir.Shape(new.shape)
    for value in model.graph.inputs:
        if value.name in feeds:
            value.shape = ir.Shape(feeds[value.name].shape)
    for node in model.graph.all_nodes():
        for value in node.outputs:
            value.shape = None if value.shape is None else ir.Shape([None] * len(value.shape))
    return Problem(model, feeds)


def _same(one: Problem, other: Problem) -> bool:
    pairs = zip(_arrays(one), _arrays(other), strict=True)
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for (_, a), (_, b) in pairs)
