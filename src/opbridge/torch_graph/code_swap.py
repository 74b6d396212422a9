"""Swaps the code objects of functions for ones that were compiled from a changed source.

Other modules have references to a function, and decorators and closures hold it too, so its code object is swapped:
every alias then runs the changed code.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

from opbridge.torch_graph.sources import full_path

__all__ = ["functions_of", "renamed", "swapped"]


def functions_of(before: ast.Module, after: ast.Module, file: str) -> dict[tuple[str, int], types.CodeType]:
    """The code objects of the functions that differ between two versions of a file.

    Returns:
        The code after the change, by qualified name and first line. Two functions of one line with the same name and
        the same parameters, which lambdas may be, are left out.
    """
    old, new = (_functions(compile(tree, file, "exec", dont_inherit=True)) for tree in (before, after))
    found = {}
    for key, codes in old.items():
        changed = new.get(key, [])
        if len(codes) == len(changed) == 1 and codes != changed:
            found[key[:2]] = changed[0]
    return found


def _functions(code: types.CodeType) -> dict[tuple[Any, ...], list[types.CodeType]]:
    """The functions in a code object by name, first line and parameters."""
    found: dict[tuple[Any, ...], list[types.CodeType]] = {}
    for one in _nested(code):
        found.setdefault((one.co_qualname, one.co_firstlineno, *_parameters(one)), []).append(one)
    return found


def _parameters(code: types.CodeType) -> tuple[Any, ...]:
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names, code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _nested(constant)


@contextlib.contextmanager
def swapped(replaced: Mapping[tuple[str, str, int], types.CodeType]) -> Iterator[None]:
    """Run functions with other code inside the block.

    Args:
        replaced: The code by the function's file, qualified name and first line.
    """
    before = list(_swap(replaced)) if replaced else []
    try:
        yield
    finally:
        for function, code in before:
            function.__code__ = code


def _swap(
    replaced: Mapping[tuple[str, str, int], types.CodeType],
) -> Iterator[tuple[types.FunctionType, types.CodeType]]:
    names = {name for _, name, _ in replaced}
    for function in [one for one in gc.get_objects() if type(one) is types.FunctionType]:
        own = function.__code__
        if own.co_qualname not in names:
            continue
        new = replaced.get((full_path(own.co_filename), own.co_qualname, own.co_firstlineno))
        if new is not None and new.co_freevars == own.co_freevars and _parameters(new) == _parameters(own):
            # A function that is the model has the name "forward".
            function.__code__ = renamed(new, new.co_name, own.co_name)
            yield function, own


def renamed(code: types.CodeType, prefix: str, name: str) -> types.CodeType:
    """Code in which functions whose names begin with ``prefix`` have another name, also inside them."""
    constants = tuple(renamed(one, prefix, name) if isinstance(one, types.CodeType) else one for one in code.co_consts)
    return code.replace(co_consts=constants, co_name=name if code.co_name.startswith(prefix) else code.co_name)
