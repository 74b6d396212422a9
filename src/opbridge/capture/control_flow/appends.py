"""Writes what a function does with a list in the form that loops and branches can take: ``append`` alone."""

from __future__ import annotations

import ast
import collections
import copy

from opbridge.capture.control_flow.exits import PREFIX, at

__all__ = ["ListsByAppend"]

_LAST, _ROWS = f"{PREFIX}last_", f"{PREFIX}rows_"


class ListsByAppend(ast.NodeTransformer):
    """Writes ``x += [a, b]`` and ``x.extend([a, b])`` as calls of ``x.append``, and ``x.reverse()`` as an assignment.

    A loop that appends to ``x`` and reads ``x[-1]`` has a variable for this element::

        for a in xs:                  last = flow.last(x)
            x.append(x[-1] + a)  ->   for a in xs:
                                          last = last + a
                                          x.append(last)

    If it also writes ``x[-1]``, and ``x`` begins as a list that is not empty, ``x`` has the elements before this one::

        for a in xs:                  last = x.pop()
            if close(x[-1], a):       for a in xs:
                x[-1] = x[-1] + a         if close(last, a):
            else:                 ->          last = last + a
                x.append(a)               else:
                                              x.append(last)
                                              last = a
                                      x.append(last)

    A loop that only adds to a tensor with ``torch.cat`` collects the parts instead::

        for a in xs:                      rows = [x]
            x = torch.cat([x, a], 1)  ->  for a in xs:
                                              rows.append(a)
                                          x = torch.cat(rows, 1)

    Args:
        flow: The name of the module with ``last``.
    """

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._filled: frozenset[str] = frozenset()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function, with its lists that are never assigned without elements."""
        outer, self._filled = self._filled, _filled_lists(node)
        self.generic_visit(node)
        self._filled = outer
        return node

    def visit_For(self, node: ast.For | ast.While) -> ast.AST | list[ast.stmt]:
        """A loop."""
        self.generic_visit(node)
        first: list[ast.stmt] = []
        rest: list[ast.stmt] = []
        for name, is_written in _used_at_the_end(node):
            if is_written and name not in self._filled:
                continue
            _LastElement(name, is_written).visit(node)
            value = _call(name, "pop") if is_written else _call(self._flow, "last", name)
            first.append(at(ast.Assign([ast.Name(_LAST + name, ast.Store())], value), node))
            if is_written:
                rest.append(at(ast.Expr(_call(name, "append", _LAST + name)), node))
        for name in _joined_names(node):
            joining = _Joining(name)
            joining.visit(node)
            assert joining.join is not None
            rows = ast.List([_name(name)], ast.Load())
            first.append(at(ast.Assign([ast.Name(_ROWS + name, ast.Store())], rows), node))
            rest.append(at(ast.Assign([ast.Name(name, ast.Store())], joining.join), node))
        return [*first, node, *rest] if first else node

    visit_While = visit_For

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        """``x += [a, b]``; a list is the only sequence that takes a list there."""
        elements = _elements(node.value)
        if isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name) and elements is not None:
            return _appends(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target), elements, node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        """``x.extend([a, b])`` and ``x.reverse()``."""
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.keywords:
            return node
        target = call.func.value
        if not isinstance(target, (ast.Name, ast.Attribute)):
            return node
        elements = _elements(call.args[0]) if call.func.attr == "extend" and len(call.args) == 1 else None
        if elements is not None:
            return _appends(target, elements, node)
        if call.func.attr == "reverse" and not call.args:
            whole = ast.Subscript(copy.deepcopy(target), ast.Slice(), ast.Store())
            backwards = ast.Slice(step=ast.UnaryOp(ast.USub(), ast.Constant(1)))
            return at(ast.Assign([whole], ast.Subscript(target, backwards, ast.Load())), node)
        return node


def _elements(node: ast.expr) -> ast.List | None:
    """The list, if it names its elements and has some."""
    if not isinstance(node, ast.List) or not node.elts or any(isinstance(one, ast.Starred) for one in node.elts):
        return None
    return node


def _appends(target: ast.expr, values: ast.List, like: ast.stmt) -> list[ast.stmt]:
    functions = (ast.Attribute(copy.deepcopy(target), "append", ast.Load()) for _ in values.elts)
    calls = (ast.Call(function, [value], []) for function, value in zip(functions, values.elts, strict=True))
    return [at(ast.Expr(call), like) for call in calls]


class _LastElement(ast.NodeTransformer):
    """Replaces ``x[-1]`` by a variable.

    Args:
        name: The list.
        is_apart: Whether the list does not have the last element.
    """

    def __init__(self, name: str, is_apart: bool) -> None:
        self._list, self._last, self._is_apart = name, _LAST + name, is_apart

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(ast.Name(self._last, node.ctx), node) if _is_end(node) == self._list else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if _appended_to(node.value) != self._list or not isinstance(node.value, ast.Call):
            return node
        assigned = at(ast.Assign([ast.Name(self._last, ast.Store())], node.value.args[0]), node)
        node.value.args = [_name(self._last)]
        return [at(node, node), assigned] if self._is_apart else [assigned, at(node, node)]


class _Joining(ast.NodeTransformer):
    """Replaces ``x = torch.cat([x, a])`` by ``rows.append(a)``.

    Attributes:
        join: The call of ``torch.cat`` after the loop.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.join: ast.Call | None = None

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        call = _added(node, self._name)
        if call is None:
            return node
        part = call.args[0].elts[1]  # type: ignore[attr-defined]
        self.join = ast.Call(call.func, [_name(_ROWS + self._name), *call.args[1:]], call.keywords)
        append = ast.Call(ast.Attribute(_name(_ROWS + self._name), "append", ast.Load()), [part], [])
        return at(ast.Expr(append), node)


def _joined_names(loop: ast.For | ast.While) -> list[str]:
    """The tensors that a loop only adds to, in one statement."""
    nodes = list(ast.walk(loop))
    uses = collections.Counter(node.id for node in nodes if isinstance(node, ast.Name))
    targets = (node.targets[0] for node in nodes if isinstance(node, ast.Assign))
    names = [target.id for target in targets if isinstance(target, ast.Name) and uses[target.id] == 2]
    return [name for name in names if any(_added(node, name) is not None for node in nodes)]


def _added(node: ast.AST, name: str) -> ast.Call | None:
    """The call in ``x = torch.cat([x, a], dim)``, with a constant ``dim``."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or len(node.targets) != 1:
        return None
    call, target = node.value, node.targets[0]
    is_cat = isinstance(call.func, ast.Attribute) and ast.unparse(call.func) in ("torch.cat", "torch.concat")
    parts = call.args[0].elts if is_cat and call.args and isinstance(call.args[0], (ast.List, ast.Tuple)) else []
    options = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    if len(parts) != 2 or not all(ast.unparse(option).lstrip("-").isdigit() for option in options):
        return None
    names = [one.id for one in (target, parts[0]) if isinstance(one, ast.Name)]
    return call if names == [name, name] else None


def _used_at_the_end(loop: ast.For | ast.While) -> list[tuple[str, bool]]:
    """The lists that a loop only appends to and uses the last element of, and whether it writes that element."""
    uses, appends, reads, writes = (collections.Counter[str]() for _ in range(4))
    for node in ast.walk(loop):
        if isinstance(node, ast.Name):
            uses[node.id] += 1
        appends.update(filter(None, [_appended_to(node.value) if isinstance(node, ast.Expr) else None]))
        (reads if isinstance(getattr(node, "ctx", None), ast.Load) else writes).update(filter(None, [_is_end(node)]))
    ends = reads + writes
    return [
        (name, writes[name] > 0) for name in sorted(ends) if appends[name] and uses[name] == appends[name] + ends[name]
    ]


def _appended_to(call: ast.expr) -> str | None:
    """The name of the list in ``x.append(a)``."""
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
        return call.func.value.id if isinstance(call.func.value, ast.Name) and len(call.args) == 1 else None
    return None


def _is_end(node: ast.AST) -> str | None:
    """The name of the list in ``x[-1]``."""
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Del) and isinstance(node.value, ast.Name):
        return node.value.id if ast.unparse(node.slice) == "-1" else None
    return None


def _filled_lists(function: ast.FunctionDef) -> frozenset[str]:
    """The variables that a function only assigns lists with elements."""
    nodes = list(ast.walk(function))
    stored = collections.Counter(
        node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    )
    lists = (node.targets for node in nodes if isinstance(node, ast.Assign) and _elements(node.value) is not None)
    filled = collections.Counter(targets[0].id for targets in lists if isinstance(targets[0], ast.Name))
    return frozenset(name for name, count in filled.items() if stored[name] == count)


def _call(owner: str, function: str, *names: str) -> ast.Call:
    return ast.Call(ast.Attribute(_name(owner), function, ast.Load()), [_name(name) for name in names], [])


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())
