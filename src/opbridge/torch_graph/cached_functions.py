"""Caches, as ``@functools.lru_cache def mask(size)``, in which a capture must not leave its results.

A dynamic size has no hash value, so that it can't be the key of a cache. During a capture, such a call runs the
function itself. Other calls keep their results, which a capture computes without data, and which later runs would read.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opbridge.torch_graph.internals import is_fake
from opbridge.torch_graph.size_guards import dimensions_of

__all__ = ["calling_without_caches", "forgetting_results", "hashed_size", "hashed_sources"]

_CACHED = type(functools.cache(lambda: None))
_LIBRARIES = ("numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "openvino")
_TOOLS = ("mpmath", "networkx", "pygments", "pytest", "_pytest", "rich", "sympy")
_INTERNAL = {"torch", "opbridge", *_LIBRARIES, *_TOOLS, *sys.stdlib_module_names}
"""Packages that no model has its code in: their own caches are kept, and not searched."""

_OF_MODULES = ("builtins", "torch.nn.modules.module")
"""Where ``object`` and ``nn.Module`` are defined, the base classes of every module."""

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_MAPPINGS = (dict, OrderedDict, defaultdict)

_WITHOUT_TENSORS = frozenset([type(None), bool, int, float, str, bytes, type, *_FUNCTIONS])

_MOST_ENTRIES = 1024
"""A dict or a list with more entries is no cache of a model."""


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
def forgetting_results(module: torch.nn.Module) -> Iterator[None]:
    """Remove, on exit, the tensors of a capture from caches outside of the module's own attributes.

    These are the caches of ``functools``, and variables of modules, attributes of classes and variables of closures, as
    well as dicts and lists in them. ``opbridge.torch_graph.state`` does the same for the attributes of the module.

    Args:
        module: The module that is captured.
    """
    if any(map(is_fake, (*module.parameters(), *module.buffers()))):
        yield  # The user's own tensors have no data.
        return
    packages = frozenset(_package(owner.__module__) for owner in _classes(module))
    loaded, modules = len(sys.modules), _modules(packages)
    owners = [*modules, *_classes(module)]
    before = [(owner, dict(vars(owner))) for owner in owners]
    calls = {}
    for function in map(_function, (*_variables(modules), *_in_closures(module))):
        if type(function) is _CACHED:
            calls[function] = function.cache_info()
    try:
        yield
    finally:
        for owner, own in before:
            now = dict(vars(owner))  # Other threads may add variables.
            has_tensors = _may_hold_tensors(now.values(), ())
            for name in [name for name, value in now.items() if _is_fake(value)] if has_tensors else ():
                if name in own:
                    setattr(owner, name, own[name])
                else:
                    delattr(owner, name)
        if len(sys.modules) != loaded:
            modules = _modules(packages)
        for value in map(_function, (*_variables(modules), *_in_closures(module))):
            # A large result takes long to search, so that functions which nobody has called are left out.
            if type(value) is not _CACHED or calls.get(value) != value.cache_info():
                _forget(value)


def _modules(packages: frozenset[str]) -> list[Any]:
    """The modules of these packages, and of those that use torch.

    A search in all of them, or among all objects, takes longer than a small capture.
    """
    return _modules_once(packages, len(sys.modules), len(vars(sys.modules["__main__"])))


@functools.lru_cache(maxsize=16)
def _modules_once(packages: frozenset[str], loaded: int, variables: int) -> list[Any]:
    """The same, as long as no module is imported, and a notebook or a script adds no variable."""
    found: dict[str, list[Any]] = defaultdict(list)
    for name, module in list(sys.modules.items()):
        if isinstance(getattr(module, "__dict__", None), dict):
            found[_package(name)].append(module)
    return [
        module
        for package, modules in found.items()
        if package not in _INTERNAL and (package in packages or _use_torch(modules))
        for module in modules
    ]


def _use_torch(modules: Collection[Any]) -> bool:
    """Whether a variable of the modules is torch, or a module, class or function of it."""
    values = (value for module in modules for value in list(vars(module).values()))
    return any(_package(_origin(value)) == "torch" for value in values)


def _origin(value: Any) -> str:
    kind = type(value)
    if issubclass(kind, types.ModuleType):
        name = vars(value).get("__name__")
    else:
        name = getattr(value, "__module__", None) if issubclass(kind, type) or kind in _FUNCTIONS else None
    return name if isinstance(name, str) else ""


def _package(module: str) -> str:
    return module.partition(".")[0]


def _variables(modules: Collection[Any]) -> list[Any]:
    """The caches that are variables of modules, or attributes of classes there."""
    values = [value for owner in modules for value in list(vars(owner).values())]
    classes = {id(value): value for value in values if issubclass(type(value), type)}
    values += [member for owner in classes.values() for member in list(vars(owner).values())]
    return [value for value in values if type(value) in _CACHES]


def _classes(module: torch.nn.Module) -> set[type]:
    return {base for part in module.modules() for base in type(part).__mro__ if base.__module__ not in _OF_MODULES}


def _in_closures(module: torch.nn.Module) -> Iterator[Any]:
    """The attributes of the classes of a module's parts, and the variables of closures that their methods reach."""
    pending = [member for owner in _classes(module) for member in list(vars(owner).values())]
    pending += [value for part in module.modules() for value in vars(part).values()]
    seen: set[int] = set()
    while pending:
        value = _function(pending.pop())
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if type(value) is _CACHED:
            pending.append(value.__wrapped__)
        elif isinstance(value, types.FunctionType):
            for cell in value.__closure__ or ():
                with contextlib.suppress(ValueError):  # A variable that has no value.
                    pending.append(cell.cell_contents)


def _forget(value: Any) -> None:
    """Remove the tensors of a capture from a cache: a function with a cache, a dict or a list."""
    if type(value) is _CACHED:
        if any(_is_fake(held) for held in _results(value)):
            value.cache_clear()
    elif type(value) in _MAPPINGS and _may_hold_tensors(value.values()):
        for key in [key for key, held in list(value.items()) if _has_fakes(held)]:
            del value[key]
    elif type(value) is list and _may_hold_tensors(value) and any(map(_has_fakes, value)):
        value[:] = [held for held in value if not _has_fakes(held)]


def _may_hold_tensors(values: Collection[Any], containers: Collection[type] = (tuple, list)) -> bool:
    """Whether a few values, looked at by their types alone, may be or contain tensors."""
    if len(values) > _MOST_ENTRIES:
        return False
    return any(kind in containers or issubclass(kind, torch.Tensor) for kind in set(map(type, list(values))))


def _has_fakes(value: Any) -> bool:
    return _is_fake(value) or (type(value) in (tuple, list) and any(map(_is_fake, value)))


def _is_fake(value: Any) -> bool:
    return issubclass(type(value), torch.Tensor) and is_fake(value)  # isinstance() asks some objects for their class.


def _results(cached: Any) -> Iterator[Any]:
    """What a cached function refers to besides code: its results, and its attributes."""
    if not cached.cache_info().currsize:
        return
    for held in gc.get_referents(cached):
        values = list(held.values()) if type(held) is dict else [held]
        if not set(map(type, values)) <= _WITHOUT_TENSORS:
            yield from pytree.tree_leaves([value for value in values if not callable(value)])


def _function(member: Any) -> Any:
    """The function of a static method, a class method or a bound method, with its cache; another value as it is."""
    kind = type(member)
    function = member.__func__ if kind in (staticmethod, classmethod, types.MethodType) else member
    return function.own if type(function) is _WithoutCache else function


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
    return type(value) is _CACHED and _package(value.__module__ or "") not in _INTERNAL


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


_CACHES = {_CACHED, _WithoutCache, staticmethod, classmethod, types.MethodType, list, *_MAPPINGS}
"""The types of what may be or have a cache."""
