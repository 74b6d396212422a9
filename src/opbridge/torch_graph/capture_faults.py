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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import sympy  # type: ignore[import-untyped]

from opbridge.torch_graph.sources import is_internal

__all__ = ["correcting_capture", "following_replaced_sizes", "rounding_proxies"]

_ROUNDINGS = {"__ceil__": math.ceil, "__floor__": math.floor, "__round__": round, "__trunc__": math.trunc}


@contextlib.contextmanager
def correcting_capture() -> Iterator[None]:
    """Correct these faults inside the block; that of sizes which are replaced occurs only in decompositions."""
    with _leaving_modules(), _leaving_unsolved_equations(), _noting_lines(), rounding_proxies():
        yield


def following_replaced_sizes() -> AbstractContextManager[Any]:
    """Let torch look up what a size is replaced by before it makes another size equal to it."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    def unify(own: Callable[..., Any], env: Any, new: Any, destination: Any) -> None:
        own(env, new, env.replace(destination))

    return _corrected(ShapeEnv, "_unify_unbacked_aliases", unify)


def _corrected(owner: type, name: str, corrected: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Call a function with a method and its arguments in the place of the method; nothing if this torch has none."""
    own = getattr(owner, name, None)
    if own is None:
        return contextlib.nullcontext()

    @functools.wraps(own)
    def method(*arguments: Any, **options: Any) -> Any:
        return corrected(own, *arguments, **options)

    return mock.patch.object(owner, name, method)


def _leaving_modules() -> AbstractContextManager[Any]:
    """Let torch's tracer leave a module that raises, as in ``try: layer(x, lengths) except TypeError: layer(x)``."""
    from torch.fx import Tracer

    def call_module(own: Callable[..., Any], tracer: Any, *args: Any, **kwargs: Any) -> Any:
        entered = tracer.module_stack.copy()
        try:
            return own(tracer, *args, **kwargs)
        except Exception:
            tracer.module_stack = entered
            raise

    return _corrected(Tracer, "call_module", call_module)


def _leaving_unsolved_equations() -> AbstractContextManager[Any]:
    """Let an equation of sizes that sympy can't solve be a condition; torch would fail, without naming the size."""
    from torch.fx.experimental.symbolic_shapes import DimConstraints

    def solve(own: Callable[..., Any], constraints: Any) -> None:
        for symbol in list(constraints._symbols_with_equalities):
            try:
                sympy.reduce_inequalities(constraints._univariate_inequalities[symbol], symbol)
            except NotImplementedError:
                constraints._symbols_with_equalities.discard(symbol)
        own(constraints)

    return _corrected(DimConstraints, "solve", solve)


def _noting_lines() -> AbstractContextManager[Any]:
    """Let torch note for each node the lines of all functions of the model that were executing."""
    from torch.fx.proxy import TracerBase

    def filtered(own: Callable[..., Any], tracer: Any, frames: traceback.StackSummary) -> traceback.StackSummary:
        forward = next((index for index, frame in enumerate(frames) if frame.name == "forward"), len(frames))
        kept = [frame for frame in frames[forward:] if frame.name == "forward" or not is_internal(frame.filename)]
        return traceback.StackSummary.from_list(kept)

    return _corrected(TracerBase, "_filter_traceback_frames", filtered)


def rounding_proxies() -> AbstractContextManager[Any]:
    """Let ``math.floor`` and the like of a number in a graph be nodes of the graph."""
    from torch.fx import Proxy

    def rounded(function: Any) -> Any:
        return lambda self, *digits: self.tracer.create_proxy("call_function", function, (self, *digits), {})

    return mock.patch.multiple(Proxy, create=True, **{name: rounded(one) for name, one in _ROUNDINGS.items()})
