"""Faults of torch's capture, corrected while opbridge captures a model.

* ``DimConstraints.solve`` fails for an equation that sympy can't solve, as in YOLOv9 with dynamic height and width.
* ``torch.fx.Tracer.module_stack`` keeps the name of a module whose ``forward`` has raised.
* ``torch.fx.proxy.TracerBase._filter_traceback_frames`` keeps only lines in functions that are named ``forward``, not
  those in a method that it calls.
* ``torch.fx.Proxy`` can't be rounded, so that torch fails to write a check of a size such as ``2 ** floor(log2(n))``.
* ``ShapeEnv._unify_unbacked_aliases`` replaces a size by one that is replaced by it, so that every later use of the two
  fails with a ``RecursionError``. torch 2.13 and older have no such function.
"""

from __future__ import annotations

import contextlib
import functools
import math
import traceback
from collections.abc import Iterator
from typing import Any

import sympy  # type: ignore[import-untyped]

from opbridge.torch_graph.sources import is_internal

__all__ = ["correcting_capture", "following_replaced_sizes", "rounding_proxies"]

_ROUNDINGS = {"__ceil__": math.ceil, "__floor__": math.floor, "__round__": round, "__trunc__": math.trunc}


@contextlib.contextmanager
def correcting_capture() -> Iterator[None]:
    """Correct these faults inside the block; that of sizes which are replaced occurs only in decompositions."""
    with _leaving_modules(), _leaving_unsolved_equations(), _noting_lines(), rounding_proxies():
        yield


@contextlib.contextmanager
def following_replaced_sizes() -> Iterator[None]:
    """Let torch look up what a size is replaced by before it makes another size equal to it."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    before = getattr(ShapeEnv, "_unify_unbacked_aliases", None)
    if before is None:
        yield
        return

    def unify(self: ShapeEnv, new: Any, destination: Any) -> None:
        before(self, new, self.replace(destination))

    ShapeEnv._unify_unbacked_aliases = unify  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        ShapeEnv._unify_unbacked_aliases = before  # type: ignore[method-assign]


@contextlib.contextmanager
def _leaving_modules() -> Iterator[None]:
    """Let torch's tracer leave a module that raises, as in ``try: layer(x, lengths) except TypeError: layer(x)``."""
    from torch.fx import Tracer

    before = Tracer.call_module

    @functools.wraps(before)
    def call_module(self: Tracer, *args: Any, **kwargs: Any) -> Any:
        entered = self.module_stack.copy()
        try:
            return before(self, *args, **kwargs)
        except Exception:
            self.module_stack = entered
            raise

    Tracer.call_module = call_module  # type: ignore[method-assign]
    try:
        yield
    finally:
        Tracer.call_module = before  # type: ignore[method-assign]


@contextlib.contextmanager
def _leaving_unsolved_equations() -> Iterator[None]:
    """Let an equation of sizes that sympy can't solve be a condition; torch would fail, without naming the size."""
    from torch.fx.experimental.symbolic_shapes import DimConstraints

    before = DimConstraints.solve

    def solve(self: DimConstraints) -> None:
        for symbol in list(self._symbols_with_equalities):
            try:
                sympy.reduce_inequalities(self._univariate_inequalities[symbol], symbol)
            except NotImplementedError:
                self._symbols_with_equalities.discard(symbol)
        before(self)

    DimConstraints.solve = solve  # type: ignore[method-assign]
    try:
        yield
    finally:
        DimConstraints.solve = before  # type: ignore[method-assign]


@contextlib.contextmanager
def _noting_lines() -> Iterator[None]:
    """Let torch note for each node the lines of all functions of the model that were executing."""
    from torch.fx.proxy import TracerBase

    before = TracerBase._filter_traceback_frames

    def filtered(self: TracerBase, frames: traceback.StackSummary) -> traceback.StackSummary:
        forward = next((index for index, frame in enumerate(frames) if frame.name == "forward"), len(frames))
        kept = [frame for frame in frames[forward:] if frame.name == "forward" or not is_internal(frame.filename)]
        return traceback.StackSummary.from_list(kept)

    TracerBase._filter_traceback_frames = filtered  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        TracerBase._filter_traceback_frames = before  # type: ignore[method-assign]


@contextlib.contextmanager
def rounding_proxies() -> Iterator[None]:
    """Let ``math.floor`` and the like of a number in a graph be nodes of the graph."""
    from torch.fx import Proxy

    def rounded(function: Any) -> Any:
        return lambda self, *digits: self.tracer.create_proxy("call_function", function, (self, *digits), {})

    for name, function in _ROUNDINGS.items():
        setattr(Proxy, name, rounded(function))
    try:
        yield
    finally:
        for name in _ROUNDINGS:
            delattr(Proxy, name)
