"""Functions with a cache, ``@functools.lru_cache def mask(size)``, whose results a capture must not leave there.

A dynamic size has no hash value, so that it can't be the key of a cache. During a capture, such a call runs the
function itself. Other calls keep their results, which a capture computes without data, and which later runs would read.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opbridge.torch_graph.internals import is_fake
from opbridge.torch_graph.size_guards import dimensions_of

__all__ = ["calling_without_caches", "forgetting_cached_results", "hashed_size", "hashed_sources"]

_CACHED = type(functools.cache(lambda: None))
_INTERNAL = ("torch", "sympy", "opbridge")
"""Packages whose own caches are kept."""


def hashed_size(error: BaseException | None) -> torch.SymInt | None:
    """The dynamic size of which a hash value was asked for; None if that is not why the error was raised."""
    traceback = error.__traceback__ if isinstance(error, TypeError) else None
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or traceback.tb_frame.f_code.co_name != "__hash__":
        return None
    size = traceback.tb_frame.f_locals.get("self")
    return size if isinstance(size, torch.SymInt) else None


def hashed_sources(error: BaseException | None) -> tuple[str, ...]:
    """The dimensions that such a size depends on, in torch's notation: ``L['x'].size()[0]``."""
    size = hashed_size(error)
    if size is None:
        return ()
    env: Any = size.node.shape_env
    return tuple(source for symbol in size.node.expr.free_symbols for source in dimensions_of(env, symbol))


@contextlib.contextmanager
def calling_without_caches(active: bool) -> Iterator[None]:
    """Make calls with dynamic sizes pass the caches of ``functools`` by inside the block, if active.

    Variables of modules, attributes of classes and variables of closures that have such a function are replaced.
    """
    undone: list[Callable[[], None]] = []
    try:
        if active:
            _replace(undone)
        yield
    finally:
        for undo in undone:
            undo()


@contextlib.contextmanager
def forgetting_cached_results(module: torch.nn.Module) -> Iterator[None]:
    """Clear, on exit, the caches of ``functools`` that hold tensors of a capture, of functions and of methods.

    Args:
        module: The module that is captured.
    """
    try:
        yield
    finally:
        for one in (*_cached_functions(), *_cached_in_closures(module)):
            if any(isinstance(held, torch.Tensor) and is_fake(held) for held in _results(one)):
                one.cache_clear()


def _cached_functions() -> Iterator[Any]:
    """Those in modules and in classes of modules: a search among all objects takes as long as a small capture."""
    for name, module in list(sys.modules.items()):
        namespace = getattr(module, "__dict__", None)
        if name.partition(".")[0] in _INTERNAL or not isinstance(namespace, dict):
            continue
        for value in map(_function, list(namespace.values())):
            if type(value) is _CACHED:
                yield value
            elif issubclass(type(value), type):
                members = map(_function, vars(value).values())
                yield from [member for member in members if type(member) is _CACHED]


def _cached_in_closures(module: torch.nn.Module) -> Iterator[Any]:
    """Those that are methods of the module's parts, or variables of closures that their methods reach."""
    classes = {base for part in module.modules() for base in type(part).__mro__ if base is not torch.nn.Module}
    pending = [member for owner in classes for member in vars(owner).values()]
    pending += [value for part in module.modules() for value in vars(part).values()]
    seen: set[int] = set()
    while pending:
        value = _function(pending.pop())
        if id(value) in seen:
            continue
        seen.add(id(value))
        if type(value) is _CACHED:
            yield value
            pending.append(value.__wrapped__)
        elif isinstance(value, types.FunctionType):
            for cell in value.__closure__ or ():
                with contextlib.suppress(ValueError):  # A variable that has no value.
                    pending.append(cell.cell_contents)


def _function(member: Any) -> Any:
    """The function of a static method, a class method or a bound method, with its cache; another value as it is."""
    kind = type(member)
    function = member.__func__ if kind in (staticmethod, classmethod, types.MethodType) else member
    return function.own if type(function) is _WithoutCache else function


def _results(cached: Any) -> Iterator[Any]:
    """What a cached function refers to besides code: its results, and its attributes."""
    for held in gc.get_referents(cached):
        if not callable(held):
            yield from pytree.tree_leaves(held)


def _replace(undone: list[Callable[[], None]]) -> None:
    for module in list(sys.modules.values()):
        namespace: Any = getattr(module, "__dict__", None)
        for name, value in list(namespace.items()) if isinstance(namespace, dict) else ():
            if _is_cached(value):
                namespace[name] = _WithoutCache(value)
                undone.append(functools.partial(namespace.__setitem__, name, value))
    for one in gc.get_objects():
        if issubclass(type(one), type):  # isinstance() asks some objects for their class.
            for name, value in [entry for entry in vars(one).items() if _is_cached(_function(entry[1]))]:
                replaced = _WithoutCache(_function(value))
                setattr(one, name, replaced if type(value) is _CACHED else type(value)(replaced))
                undone.append(functools.partial(setattr, one, name, value))
        elif type(one) is types.CellType:
            with contextlib.suppress(ValueError):  # A variable that has no value.
                value = one.cell_contents
                if _is_cached(value):
                    one.cell_contents = _WithoutCache(value)
                    undone.append(functools.partial(setattr, one, "cell_contents", value))


def _is_cached(value: Any) -> bool:
    return type(value) is _CACHED and (value.__module__ or "").partition(".")[0] not in _INTERNAL


class _WithoutCache:
    """A function with a cache that is called without it for dynamic sizes."""

    def __init__(self, own: Any) -> None:
        functools.update_wrapper(self, own)
        self.own = own

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        if any(isinstance(leaf, (torch.SymInt, torch.SymFloat)) for leaf in leaves):
            return self.own.__wrapped__(*args, **kwargs)
        try:
            return self.own(*args, **kwargs)
        except TypeError as error:
            if hashed_size(error) is None:
                raise
        return self.own.__wrapped__(*args, **kwargs)
