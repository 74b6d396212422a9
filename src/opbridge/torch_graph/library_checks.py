"""Checks of installed libraries are left out while a model is captured, because its user can't change them.

An ``assert condition``, and an ``if condition:`` that only raises an error, need a tensor's value in Python if they
check the values of an input. An ONNX model can't raise an error, so without them the captured program is the same. The
functions that contain such a statement are compiled again from their source, and their code objects are swapped.

The same is done with an ``if n >= 64: x = x.contiguous()`` of a library, which restricts a size and computes nothing.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import linecache
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from opbridge.torch_graph.sources import SourceLine, frames_of_error, innermost

__all__ = ["line_to_leave_out", "lines_of_error", "statement_that_only_raises", "without_checks"]


def line_to_leave_out(error: BaseException | None, lines: Iterable[SourceLine]) -> SourceLine | None:
    """A line of an installed library that stopped or restricted a capture and can be left out; None if there is none.

    Args:
        error: The exception that ended the capture.
        lines: The lines whose conditions restrict the captured program.
    """
    found = (line for line in (*lines, *lines_of_error(error)) if line.is_installed)
    return next((line for line in found if _statement(line, _has_no_effect)), None)


def lines_of_error(error: BaseException | None) -> tuple[SourceLine, ...]:
    """The line outside torch that an exception was raised at; empty if there is none."""
    line = innermost(frames_of_error(error), libraries=True) if error is not None else None
    return () if line is None else (line,)


def statement_that_only_raises(line: SourceLine) -> str:
    """The source of the ``assert``, or of the ``if`` that only raises, whose condition is on this line; else ""."""
    return _statement(line, _only_raises)


def _statement(line: SourceLine, accepts: Callable[[ast.AST], bool]) -> str:
    tree = _parsed(line.file)
    for node in ast.walk(tree) if tree is not None else ():
        if accepts(node) and _spans(_condition(node), line.line):
            return f"{'assert' if isinstance(node, ast.Assert) else 'if'} {ast.unparse(_condition(node))}"
    return ""


@contextlib.contextmanager
def without_checks(lines: Collection[SourceLine]) -> Iterator[None]:
    """Leave out the checks on these lines of all functions inside the block."""
    replaced: dict[tuple[str, str, int], types.CodeType] = {}
    for file in {line.file for line in lines}:
        codes = _codes_without_checks(file, {line.line for line in lines if line.file == file})
        replaced.update({(file, *key): code for key, code in codes.items()})
    swapped = list(_swapped(replaced)) if replaced else []
    try:
        yield
    finally:
        for function, code in swapped:
            function.__code__ = code


def _swapped(
    replaced: Mapping[tuple[str, str, int], types.CodeType],
) -> Iterator[tuple[types.FunctionType, types.CodeType]]:
    for function in [one for one in gc.get_objects() if type(one) is types.FunctionType]:
        own = function.__code__
        new = replaced.get((_absolute(own.co_filename), own.co_qualname, own.co_firstlineno))
        if new is not None and new.co_freevars == own.co_freevars:
            function.__code__ = new
            yield function, own


@functools.cache
def _absolute(file: str) -> str:
    return file if file.startswith("<") else str(Path(file).resolve())


def _codes_without_checks(file: str, lines: Collection[int]) -> dict[tuple[str, int], types.CodeType]:
    """The code objects of functions that differ without these checks, by qualified name and first line."""
    before, after = _parsed(file), _parsed(file)
    if before is None or after is None:
        return {}
    _WithoutChecks(lines).visit(after)
    ast.fix_missing_locations(after)
    old, new = (dict(_functions(compile(tree, file, "exec", dont_inherit=True))) for tree in (before, after))
    return {key: code for key, code in new.items() if old.get(key) != code}


def _functions(code: types.CodeType) -> Iterator[tuple[tuple[str, int], types.CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield (constant.co_qualname, constant.co_firstlineno), constant
            yield from _functions(constant)


class _WithoutChecks(ast.NodeTransformer):
    def __init__(self, lines: Collection[int]) -> None:
        self._lines = lines

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.Pass() if any(_spans(node.test, line) for line in self._lines) else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if _has_no_effect(node) and any(_spans(node.test, line) for line in self._lines):
            return node.orelse or ast.Pass()
        return node


def _only_raises(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return all(isinstance(statement, ast.Raise) for statement in node.body)
    return isinstance(node, ast.Assert)


def _has_no_effect(node: ast.AST) -> bool:
    """Whether a statement does nothing in a model: it only raises an error, or only changes strides."""
    return _only_raises(node) or (isinstance(node, ast.If) and all(map(_makes_contiguous, node.body)))


def _makes_contiguous(statement: ast.stmt) -> bool:
    """Whether a statement is ``x = x.contiguous()``."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    return ast.unparse(statement.value) == f"{ast.unparse(statement.targets[0])}.contiguous()"


def _condition(node: Any) -> Any:
    return node.test


def _spans(node: Any, line: int) -> bool:
    return bool(node.lineno <= line <= (node.end_lineno or node.lineno))


def _parsed(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
