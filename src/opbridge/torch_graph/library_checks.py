"""Checks of installed libraries are left out while a model is captured, because its user can't change them.

An ``assert condition``, and an ``if condition:`` that only raises an error, need a tensor's value in Python if they
check the values of an input. An ONNX model can't raise an error, so without them the captured program is the same. The
functions that contain such a statement are compiled again from their source, and their code objects are swapped.

The same is done with an ``if n >= 64: x = x.contiguous()`` of a library, which restricts a size and computes nothing.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from opbridge.torch_graph.code_swap import functions_of, swapped
from opbridge.torch_graph.sources import SourceLine, frames_of_error, innermost
from opbridge.torch_graph.statements import parsed_file

__all__ = ["lines_of_error", "lines_to_leave_out", "statement_that_only_raises", "without_checks"]


def lines_to_leave_out(error: BaseException | None, lines: Iterable[SourceLine]) -> set[SourceLine]:
    """The lines of installed libraries that stopped or restricted a capture and can be left out.

    Args:
        error: The exception that ended the capture.
        lines: The lines whose conditions restrict the captured program.
    """
    found = [line for line in (*lines, *lines_of_error(error)) if line.is_installed]
    found += _lines_of_distributions(error)[-1:]
    return {line for line in found if _statement(line, _has_no_effect)}


def _lines_of_distributions(error: BaseException | None) -> list[SourceLine]:
    """The lines of torch.distributions, whose checks of parameters and samples read the values of tensors."""
    folder = f"{Path(inspect.getfile(torch.distributions)).resolve().parent}{os.sep}"
    return [line for line in frames_of_error(error) if line.file.startswith(folder)] if error is not None else []


def lines_of_error(error: BaseException | None) -> tuple[SourceLine, ...]:
    """The line outside torch that an exception was raised at; empty if there is none."""
    line = innermost(frames_of_error(error), libraries=True) if error is not None else None
    return () if line is None else (line,)


def statement_that_only_raises(line: SourceLine) -> str:
    """The source of the ``assert``, or of the ``if`` that only raises, whose condition is on this line; else ""."""
    return _statement(line, _only_raises)


def _statement(line: SourceLine, accepts: Callable[[ast.AST], bool]) -> str:
    tree = parsed_file(line.file)
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
    with swapped(replaced):
        yield


def _codes_without_checks(file: str, lines: Collection[int]) -> dict[tuple[str, int], types.CodeType]:
    """The code objects of functions that differ without these checks, by qualified name and first line."""
    before, after = parsed_file(file), parsed_file(file)
    if before is None or after is None:
        return {}
    _WithoutChecks(lines).visit(after)
    ast.fix_missing_locations(after)
    return functions_of(before, after, file)


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
