"""Prepare the Python function of a kernel for Numba, and hash everything that its code depends on."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from opbridge.errors import BuildError

__all__ = ["fingerprint", "place", "plain_function", "returning_errors", "source_text"]

_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), np.generic)


def plain_function(function: Callable[..., Any]) -> types.FunctionType:
    """The plain Python function, without Numba's decorator."""
    return inspect.unwrap(getattr(function, "py_func", function))  # type: ignore[return-value]


def place(function: types.FunctionType) -> str:
    """The location of the function as ``file:line``."""
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


def source_text(function: types.FunctionType) -> str:
    """The function's lines.

    Raises:
        BuildError: The function is not in a file.
    """
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise BuildError(
            f"The source of the kernel {function.__name__} is not in a file, but it is needed for compiling.",
            fix="write the kernel in a file, not in an interactive session.",
        ) from error


def returning_errors(function: types.FunctionType) -> tuple[types.FunctionType, tuple[str, ...]]:
    """Replace each ``raise`` and ``assert`` by ``return number``; returns the new function and the text of each number.

    Numba's exceptions need Python when they are raised; a number does not. The new function ends with ``return 0``.

    Returns:
        The function, and the texts, starting with that of number 1.

    Raises:
        BuildError: An exception's text is not constant, or the function returns something.
    """
    tree = ast.parse(source_text(function))
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    definition = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
    if definition is None:
        raise BuildError(
            f"The kernel at {place(function)} is not a function defined with 'def'.",
            fix="write it as 'def name(...):'.",
        )
    rewrite = _ErrorsReturned(function.__code__.co_filename)
    definition.body = [rewrite.visit(statement) for statement in definition.body]
    definition.body.append(ast.Return(ast.Constant(0)))
    definition.decorator_list, definition.returns = [], None
    for argument in definition.args.args:
        argument.annotation = None
    return _compiled(definition, function), tuple(rewrite.texts)


def _compiled(definition: ast.FunctionDef, function: types.FunctionType) -> types.FunctionType:
    """The function of a definition, with the globals and the enclosing variables of another."""
    names = function.__code__.co_freevars
    factory = ast.parse(f"def factory({', '.join(names)}):\n    return {definition.name}")
    factory.body[0].body.insert(0, definition)  # type: ignore[attr-defined]
    ast.fix_missing_locations(factory)
    scope: dict[str, Any] = {}
    exec(compile(factory, function.__code__.co_filename, "exec"), function.__globals__, scope)
    result = scope["factory"](*(cell.cell_contents for cell in function.__closure__ or ()))
    result.__defaults__ = function.__defaults__
    return result


class _ErrorsReturned(ast.NodeTransformer):
    def __init__(self, file: str) -> None:
        self.texts: list[str] = []
        self._file = file

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        raised = node.exc
        if isinstance(raised, ast.Call) and len(raised.args) == 1 and isinstance(raised.args[0], ast.Constant):
            return self._number(node, str(raised.args[0].value))
        if isinstance(raised, ast.Name):
            return self._number(node, raised.id)
        raise self._error(
            node, "raises an exception whose text is not constant", "write it as raise ValueError('what is wrong')."
        )

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        if node.msg is not None and not isinstance(node.msg, ast.Constant):
            raise self._error(node, "asserts with a text that is not constant", "write the text as a constant.")
        text = str(node.msg.value) if isinstance(node.msg, ast.Constant) else ast.unparse(node.test)
        failed = ast.If(ast.UnaryOp(ast.Not(), node.test), [self._number(node, text)], [])
        return ast.fix_missing_locations(ast.copy_location(failed, node))

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        if node.value is not None:
            raise self._error(node, "returns a value", "write to the outputs, which are its last parameters, instead.")
        return ast.copy_location(ast.Return(ast.copy_location(ast.Constant(0), node)), node)

    def visit_Try(self, node: ast.Try) -> ast.stmt:
        raise self._error(node, "has a try statement, which needs Python", "test for the condition instead.")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    def _number(self, node: ast.stmt, text: str) -> ast.Return:
        self.texts.append(text)
        return ast.copy_location(ast.Return(ast.copy_location(ast.Constant(len(self.texts)), node)), node)

    def _error(self, node: ast.stmt, what: str, fix: str) -> BuildError:
        return BuildError(f"{self._file}:{node.lineno}: the kernel {what}.", fix=fix)


def fingerprint(function: types.FunctionType) -> str | None:
    """A hash of the function's code and of everything that it uses; None if something can't be hashed.

    The contents of modules are not hashed, so the caller must add the versions of NumPy and Numba.
    """
    digest = hashlib.sha256()
    try:
        _add_function(function, digest, set())
    except _NotHashableError:
        return None
    return digest.hexdigest()


class _NotHashableError(Exception):
    pass


def _add_function(function: types.FunctionType, digest: Any, seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    _add_code(function.__code__, digest)
    variables = inspect.getclosurevars(function)
    for name, value in sorted({**variables.globals, **variables.nonlocals}.items()):
        digest.update(name.encode())
        _add_value(value, digest, seen)


def _add_code(code: types.CodeType, digest: Any) -> None:
    # Line numbers are not hashed, since moving a function does not change it.
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _add_code(constant, digest)
        else:
            digest.update(repr(constant).encode())


def _add_value(value: Any, digest: Any, seen: set[int]) -> None:
    function = getattr(value, "py_func", value)
    if isinstance(function, types.FunctionType) and not (function.__module__ or "").startswith(("numba.", "numpy.")):
        _add_function(function, digest, seen)
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    elif isinstance(value, tuple):
        for item in value:
            _add_value(item, digest, seen)
    elif isinstance(value, _CONSTANTS):
        digest.update(repr(value).encode())
    elif isinstance(value, types.ModuleType | types.BuiltinFunctionType | np.ufunc | type):
        digest.update(str(getattr(value, "__name__", value)).encode())
    elif not (getattr(value, "__module__", None) or "").startswith(("numba", "numpy")):
        raise _NotHashableError
