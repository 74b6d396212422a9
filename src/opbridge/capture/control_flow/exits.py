"""Rewrites ``return``, ``break`` and ``continue`` inside branches and loops as assignments.

What follows an ``if`` whose body always leaves the block moves into its ``else``. Otherwise a variable notes that the
block was left, and what follows is done only if it was not.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from opbridge.capture.control_flow.names import inside

__all__ = ["PREFIX", "as_branch", "at", "change_blocks", "leaves", "lowered", "own_exits", "place", "with_rest_inside"]

PREFIX = "_opbridge_"
"""The beginning of the names that converted code has besides those of its source."""

_Node = TypeVar("_Node", bound=ast.AST)

_LOOPS = (ast.For, ast.While)
_EXITS = (ast.Return, ast.Break, ast.Continue)
_BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)


@dataclasses.dataclass(frozen=True)
class _Flags:
    """The variables that note how a block was left."""

    returns: str
    breaks: str = ""
    continues: str = ""


def lowered(function: ast.FunctionDef) -> list[ast.stmt]:
    """The body of a function, with a ``return`` at its end only."""
    if not any(_has(block, (ast.Return, ast.Break, ast.Continue)) for block in function.body):
        return function.body
    numbers = itertools.count()
    flags = _Flags(f"{PREFIX}returned")
    body = list(function.body)
    if any(_has(block, (ast.Return,)) for block in function.body if not isinstance(block, ast.Return)):
        if not leaves(body):
            body.append(at(ast.Return(ast.Constant(None)), body[-1]))
        body = [_assign(flags.returns, False, body[0]), *_Lowering(numbers, True).block(body, flags)]
        body.append(at(ast.Return(ast.Name(f"{PREFIX}result", ast.Load())), body[-1]))
    else:
        body = _Lowering(numbers, False).block(body, flags)
    return _without_unread_flags(body)


def with_rest_inside(body: list[ast.stmt], lines: Collection[int]) -> list[ast.stmt]:
    """The body of a function in which what follows the ``if`` statements on these lines is in both of their branches.

    The values that a variable has after the two branches then need not have one form.
    """
    for index, statement in enumerate(body):
        branch = as_branch(statement) if statement.lineno in lines else None
        if branch is not None:
            rest = with_rest_inside(body[index + 1 :], lines)
            branch.body += copy.deepcopy(rest)
            branch.orelse += rest
            return [*body[:index], *_before(statement), branch]
    return body


def as_branch(statement: ast.stmt) -> ast.If | None:
    """A statement as an ``if``, None if it is no branch.

    It is itself, or what ``x = a if t else b`` stands for, or for a loop, whether it has an item.
    """
    if isinstance(statement, ast.If):
        return statement
    if isinstance(statement, ast.For) and not hasattr(statement, "is_search"):
        items = ast.Name(_items(statement), ast.Load())
        test = ast.Call(ast.Attribute(ast.Name(f"{PREFIX}flow", ast.Load()), "has_items", ast.Load()), [items], [])
        loop = ast.For(statement.target, items, statement.body, statement.orelse)
        without = copy.deepcopy(statement.orelse) or [ast.Pass()]
        return at(ast.If(test, [at(loop, statement)], without), statement)
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.IfExp)):
        return None
    choice, targets = statement.value, statement.targets
    body, orelse = (ast.Assign(copy.deepcopy(targets), value) for value in (choice.body, choice.orelse))
    return at(ast.If(choice.test, [body], [orelse]), statement)


def _before(statement: ast.stmt) -> list[ast.stmt]:
    """What precedes a statement as a branch: the items of a loop are computed once."""
    if not isinstance(statement, ast.For):
        return []
    return [at(ast.Assign([ast.Name(_items(statement), ast.Store())], statement.iter), statement)]


def _items(loop: ast.For) -> str:
    return f"{PREFIX}items_{loop.lineno}"


def _has(statement: ast.stmt, kinds: tuple[type, ...]) -> bool:
    """Whether a statement contains ``return``, or a ``break`` or ``continue`` of a loop inside it too."""
    return any(isinstance(node, kinds) for node in inside([statement]))


def own_exits(statements: Sequence[ast.stmt], in_loop: bool = False) -> Iterator[type]:
    """The kinds of exits of this block; those of loops inside it only if they leave the function."""
    for statement in statements:
        if isinstance(statement, _EXITS):
            if isinstance(statement, ast.Return) or not in_loop:
                yield type(statement)
        elif isinstance(statement, _BLOCKS):
            loop = isinstance(statement, _LOOPS)
            for name, block in _blocks(statement):
                yield from own_exits(block, in_loop or (loop and name == "body"))


def _blocks(statement: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if block:
            yield name, block
    for handler in getattr(statement, "handlers", ()):
        yield "handler", handler.body


def change_blocks(statement: ast.stmt, change: Callable[[list[ast.stmt]], list[ast.stmt]]) -> None:
    """Replace the blocks of a statement by what a function makes of them; those of functions and classes stay."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    for name in ("body", "orelse", "finalbody"):
        if getattr(statement, name, None):
            setattr(statement, name, change(getattr(statement, name)))
    for handler in getattr(statement, "handlers", ()):
        handler.body = change(handler.body)


def leaves(block: Sequence[ast.stmt]) -> bool:
    """Whether a block never runs on into what follows it."""
    last = block[-1] if block else None
    if isinstance(last, (*_EXITS, ast.Raise)):
        return True
    if isinstance(last, ast.If):
        return leaves(last.body) and leaves(last.orelse)
    if isinstance(last, ast.With):
        return leaves(last.body)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return ast.Break not in set(own_exits(last.body))
    return False


class _Lowering:
    def __init__(self, numbers: Iterator[int], returns: bool) -> None:
        self._numbers = numbers
        self._returns = returns

    def block(self, statements: Sequence[ast.stmt], flags: _Flags) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for index, statement in enumerate(statements):
            if isinstance(statement, _EXITS) and (self._returns or not isinstance(statement, ast.Return)):
                return [*found, *self._exit(statement, flags)]
            if isinstance(statement, (ast.Raise, ast.Return)):
                return [*found, statement]
            exits = set(own_exits([statement]))
            rest = list(statements[index + 1 :])
            if isinstance(statement, ast.If) and exits and (leaves(statement.body) or leaves(statement.orelse)):
                return [*found, self._with_rest(statement, rest, flags)]
            if not isinstance(statement, _BLOCKS):
                found.append(statement)
                continue
            found += self._compound(statement, flags)
            if exits and rest:
                return [*found, self._unless(exits, flags, rest)]
        return found

    def _exit(self, statement: ast.stmt, flags: _Flags) -> list[ast.stmt]:
        if isinstance(statement, ast.Return):
            value = statement.value or ast.Constant(None)
            assign = ast.Assign([ast.Name(f"{PREFIX}result", ast.Store())], value)
            return [at(assign, statement), _assign(flags.returns, True, statement)]
        return [_assign(flags.breaks if isinstance(statement, ast.Break) else flags.continues, True, statement)]

    def _with_rest(self, statement: ast.If, rest: list[ast.stmt], flags: _Flags) -> ast.If:
        body, orelse = statement.body, statement.orelse
        if not leaves(orelse):
            orelse = [*orelse, *rest]
        elif not leaves(body):
            body = [*body, *rest]
        body = self.block(body, flags) or [at(ast.Pass(), statement)]
        return at(ast.If(statement.test, body, self.block(orelse, flags)), statement)

    def _compound(self, statement: ast.stmt, flags: _Flags) -> list[ast.stmt]:
        if isinstance(statement, _LOOPS):
            return self._loop(statement, flags)
        change_blocks(statement, lambda block: self.block(block, flags) or [at(ast.Pass(), statement)])
        return [statement]

    def _loop(self, loop: ast.stmt, outer: _Flags) -> list[ast.stmt]:
        assert isinstance(loop, _LOOPS)
        number = next(self._numbers)
        flags = _Flags(outer.returns, f"{PREFIX}broken_{number}", f"{PREFIX}continued_{number}")
        exits = set(own_exits(loop.body))
        ends = [flags.breaks] if ast.Break in exits else []
        ends += [flags.returns] if ast.Return in exits and self._returns else []
        body = self.block(loop.body, flags) or [at(ast.Pass(), loop)]
        loop.body = [_assign(flags.continues, False, loop), *body] if ast.Continue in exits else body
        before = [_assign(flags.breaks, False, loop)] if ast.Break in exits else []
        after: list[ast.stmt] = []
        if loop.orelse:
            orelse = self.block(loop.orelse, outer)
            after = [at(ast.If(_none(ends, loop), orelse, []), loop)] if ends else orelse
            loop.orelse = []
        if ends:
            goes_on = _none(ends, loop)
            if isinstance(loop, ast.While):
                forever = isinstance(loop.test, ast.Constant) and loop.test.value is True
                loop.test = goes_on if forever else at(ast.BoolOp(ast.And(), [goes_on, loop.test]), loop)
            else:
                loop.goes_on = goes_on  # type: ignore[attr-defined]
        return [*before, loop, *after]

    def _unless(self, exits: set[type], flags: _Flags, rest: list[ast.stmt]) -> ast.If:
        names = {ast.Return: flags.returns, ast.Break: flags.breaks, ast.Continue: flags.continues}
        left = [names[kind] for kind in _EXITS if kind in exits]
        return at(ast.If(_none(left, rest[0]), self.block(rest, flags), []), rest[0])


def _none(names: Sequence[str], like: ast.AST) -> ast.expr:
    """An expression: that none of these variables is true."""
    tests: list[ast.expr] = [ast.UnaryOp(ast.Not(), ast.Name(name, ast.Load())) for name in names]
    return at(tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests), like)


def _assign(name: str, value: bool, like: ast.AST) -> ast.stmt:
    return at(ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value)), like)


def at(node: _Node, like: ast.AST) -> _Node:
    """Give a node and those inside it the position of another, where they have none."""
    for one in ast.walk(node):
        if not hasattr(one, "lineno") and isinstance(one, (ast.expr, ast.stmt)):
            place(one, like)
    return node


def place(node: ast.AST, like: ast.AST) -> None:
    """Give a new node the first line of another: Python reports the last line of a call of an attribute."""
    ast.copy_location(node, like)
    node.end_lineno = node.lineno  # type: ignore[attr-defined]
    node.end_col_offset = node.col_offset  # type: ignore[attr-defined]


def _without_unread_flags(body: list[ast.stmt]) -> list[ast.stmt]:
    module = ast.Module(body, [])
    read = {node.id for node in ast.walk(module) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    read |= {
        name.id for node in ast.walk(module) if hasattr(node, "goes_on") for name in ast.walk(node.goes_on)
        if isinstance(name, ast.Name)
    }  # fmt: skip
    return [kept for statement in body if (kept := _Unread(read).visit(statement)) is not None]


class _Unread(ast.NodeTransformer):
    def __init__(self, read: set[str]) -> None:
        self._read = read

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id.startswith(PREFIX) and target.id not in self._read:
            return ast.copy_location(ast.Pass(), node)
        return node
