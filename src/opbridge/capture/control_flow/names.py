"""Which variables the statements of a function assign, read and change."""

from __future__ import annotations

import ast
import collections
import itertools
from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "COMPARISONS",
    "LOOKUPS",
    "MESSAGES",
    "OF_ITEMS",
    "PARTS",
    "REPLACED",
    "assigned",
    "augmented",
    "changed_by_functions",
    "compares_in",
    "gets_attribute",
    "has_conditions",
    "inside",
    "is_rewritten",
    "is_temporary",
    "loaded",
    "locals_of",
    "looks_up",
    "names_of",
    "parts_of",
    "repeats_list",
    "touched",
]

OF_ITEMS = (
    *("range", "enumerate", "zip", "reversed", "list", "tuple", "min", "max", "any", "all", "sum", "map", "filter"),
    *("sorted", "reduce", "accumulate", "pairwise", "product", "combinations", "chain"),
)
"""The functions of iterables among the builtins, ``functools`` and ``itertools`` that a conversion replaces."""

REPLACED = (*OF_ITEMS, "len", "bool", "int", "float")
"""The functions of Python that a conversion replaces."""

COMPARISONS = ("equal", "allclose", "is_nonzero", "is_integer", "numel")
"""The methods and functions of torch that a conversion replaces."""

PARTS = ("unbind", "split", "chunk", "tolist", "tensor", "as_tensor", "FloatTensor", "LongTensor")
"""The methods and functions of torch between a tensor and a list of its parts, which a conversion replaces."""

MESSAGES = ("print", "warn", "warning", "warn_once", "warning_once", "info", "debug", "error", "log", "exception")
"""Functions and methods that print or log a message."""

LOOKUPS = ("index", "count", "get", "pop", "sort")
"""The methods of lists and dicts that look up or order elements, which a conversion replaces."""

_BRANCHES = (ast.If, ast.While, ast.For, ast.Assert, ast.IfExp, ast.BoolOp, ast.Compare)
_LISTS = (ast.ListComp, ast.GeneratorExp)

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def inside(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of these statements, without those of functions and classes defined in them."""
    for node in nodes:
        yield node
        if not isinstance(node, _SCOPES):
            yield from inside(ast.iter_child_nodes(node))


def _outside_comprehensions(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield node
        if isinstance(node, _COMPREHENSIONS):
            yield from (one for one in inside([node]) if isinstance(one, ast.NamedExpr))
        elif not isinstance(node, _SCOPES):
            yield from _outside_comprehensions(ast.iter_child_nodes(node))


def _path(node: ast.AST) -> str | None:
    """``"x"`` or ``"self.h"``; None for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _path(node.value)
        return base and f"{base}.{node.attr}"
    return None


def assigned(statements: Sequence[ast.stmt]) -> list[str]:
    """The variables and attributes that the statements assign, in their order."""
    names: dict[str, None] = {}
    for node in _outside_comprehensions(statements):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            path = _path(node)
            names.update({path: None} if path else {})
        elif isinstance(node, ast.NamedExpr):
            names[node.target.id] = None
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            names[node.name] = None
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update({(alias.asname or alias.name).partition(".")[0]: None for alias in node.names})
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names[node.name] = None
    return list(names)


def touched(statements: Sequence[ast.stmt]) -> list[str]:
    """The variables and attributes whose lists, dicts or own attributes the statements may change."""
    names: dict[str, None] = {}
    for node in inside(statements):
        changed: list[ast.expr] = []
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            changed = [node.value]
        elif isinstance(node, ast.Call):
            owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            changed = [*owner, *node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.AugAssign):
            changed = [node.target]
        for base in changed:
            while isinstance(base, ast.Subscript):
                base = base.value
            path = _path(base)
            names.update({path: None} if path else {})
    return list(names)


def changed_by_functions(body: Sequence[ast.stmt]) -> dict[str, tuple[list[str], list[str]]]:
    """What the functions that these statements define change of the variables around them, by their names.

    Returns:
        The variables that a call assigns, and those whose lists or dicts it may change.
    """
    functions = {node.name: node for node in inside(body) if isinstance(node, ast.FunctionDef)}
    found = {}
    for name in functions:
        called, new = {name}, {name}
        while new:
            new = {one for caller in new for one in loaded(functions[caller].body) if one in functions} - called
            called |= new
        parts = [functions[one] for one in functions if one in called]
        nonlocals = [one.names for part in parts for one in inside(part.body) if isinstance(one, ast.Nonlocal)]
        held = [one for part in parts for one in touched(part.body) if one.partition(".")[0] not in locals_of(part)[0]]
        found[name] = [*itertools.chain(*nonlocals)], held
    return found


def loaded(nodes: Iterable[ast.AST]) -> collections.Counter[str]:
    """How often each variable is read, also by functions defined inside; not those of comprehensions and lambdas."""
    return collections.Counter(name for node in nodes for name in _loads(node, frozenset()))


def _loads(node: ast.AST, own: frozenset[str]) -> Iterator[str]:
    """The variables that a node reads, without those of the comprehensions and lambdas around it."""
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Name):
        parts = []
        if isinstance(node.ctx, (ast.Load, ast.Del)) and node.id not in own:
            yield node.id
    elif isinstance(node, _COMPREHENSIONS):
        first, *others = node.generators
        yield from _loads(first.iter, own)
        elements = [part for part in parts if not isinstance(part, ast.comprehension)]
        parts = [first.target, *first.ifs, *others, *elements]
        targets = [one for generator in node.generators for one in ast.walk(generator.target)]
        own |= {one.id for one in targets if isinstance(one, ast.Name)}
    elif isinstance(node, ast.Lambda):
        yield from _loads(node.args, own)
        parts = [node.body]
        own |= {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
    for part in parts:
        yield from _loads(part, own)


def augmented(nodes: Iterable[ast.AST]) -> set[str]:
    """The variables in ``name += ...``, which reads them without loading them."""
    targets = (one.target for node in nodes for one in ast.walk(node) if isinstance(one, ast.AugAssign))
    return {target.id for target in targets if isinstance(target, ast.Name)}


def parts_of(statement: ast.stmt) -> tuple[list[ast.expr], list[list[ast.stmt]]]:
    """What an ``if``, a ``for`` or a ``while`` reads itself, and its blocks; no blocks for any other statement."""
    if isinstance(statement, ast.For):
        item: list[ast.stmt] = [ast.Assign([statement.target], statement.iter)]
        return [statement.iter], [[*item, *statement.body], statement.orelse]
    if isinstance(statement, (ast.If, ast.While)):
        return [statement.test], [statement.body, statement.orelse]
    return [], []


def is_temporary(name: str, blocks: Sequence[Sequence[ast.stmt]]) -> bool:
    """Whether each of these blocks that uses a variable assigns it before it reads it."""
    return all(_assigns_first(name, block) for block in blocks)


def _assigns_first(name: str, block: Sequence[ast.stmt]) -> bool:
    for statement in block:
        head, blocks = parts_of(statement)
        if blocks and not loaded(head)[name]:
            if not is_temporary(name, blocks):
                return False
            continue
        if loaded([statement])[name] or name in augmented([statement]):
            return False
        if isinstance(statement, ast.Assign) and name in assigned([statement]):
            return True
    return True


def names_of(target: ast.expr, item: str) -> list[tuple[str, str]]:
    """The variables of a target that is a variable, or nested tuples of variables; none for any other.

    Returns:
        For each its name, and the expression of the part of an item that it is: ``[("i", "item[0]"), ...]``.
    """
    if isinstance(target, ast.Name):
        return [(target.id, item)]
    parts = target.elts if isinstance(target, ast.Tuple) else []
    names = [names_of(part, f"{item}[{place}]") for place, part in enumerate(parts)]
    return [one for found in names for one in found] if all(names) else []


def is_rewritten(node: ast.AST) -> bool:
    """Whether the conversion of a function rewrites this node, apart from its parts."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
        return name in (*REPLACED, *COMPARISONS, *PARTS, *LOOKUPS, *MESSAGES)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)) or repeats_list(node)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Starred):
        return isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Tuple) or looks_up(node)
    return isinstance(node, (*_BRANCHES, *_LISTS)) or looks_up(node)


def has_conditions(call: ast.Call) -> bool:
    """Whether an option of a call may be a condition: ``f(x, n > 1)``, ``f(x, flag=...)``."""
    options = [one.value for one in call.keywords if one.arg is not None]
    return compares_in(call) or not all(isinstance(one, ast.Constant) for one in options)


def compares_in(call: ast.Call) -> bool:
    """Whether an argument of a call is a comparison."""
    arguments = [*call.args, *(one.value for one in call.keywords)]
    return any(isinstance(one, (ast.BoolOp, ast.Compare)) for one in arguments)


def looks_up(node: ast.AST) -> bool:
    """Whether an expression looks up an element, or makes a dict, by a key that is no constant."""
    if isinstance(node, ast.Subscript):
        return not any(isinstance(one, (ast.Slice, ast.Constant)) for one in (node.slice, *_parts(node.slice)))
    if isinstance(node, ast.Dict):
        return None not in node.keys and not all(isinstance(key, ast.Constant) for key in node.keys)
    return isinstance(node, ast.Call) and (getattr(node.func, "attr", None) in LOOKUPS or gets_attribute(node))


def gets_attribute(call: ast.Call) -> bool:
    """Whether a call is ``getattr`` with a name that is no constant."""
    names = call.args[1:2]
    return getattr(call.func, "id", None) == "getattr" and any(not isinstance(one, ast.Constant) for one in names)


def _parts(index: ast.expr) -> Sequence[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else ()


def repeats_list(node: ast.AST) -> bool:
    """Whether an expression is ``[...] * n``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    return isinstance(node.left, ast.List) != isinstance(node.right, ast.List)


def locals_of(function: ast.FunctionDef) -> tuple[set[str], set[str]]:
    """The local variables of a function (``nonlocal`` ones too), and those that it declares ``global``."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    names = {one.arg for one in every} | {name for name in assigned(function.body) if "." not in name}
    shared: set[str] = set()
    for node in inside(function.body):
        if isinstance(node, ast.Global):
            shared.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            names.update(node.names)
    return names - shared, shared
