"""Rewrites the expressions of a function: conditions, lookups and functions of iterables also take tensors."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence

from opbridge.capture.control_flow.exits import PREFIX
from opbridge.capture.control_flow.expressions import COMPARED, binds, is_simple
from opbridge.capture.control_flow.names import (
    COMPARISONS,
    LOOKUPS,
    PARTS,
    REPLACED,
    gets_attribute,
    has_conditions,
    loaded,
    looks_up,
    names_of,
    repeats_list,
    touched,
)
from opbridge.capture.control_flow.nodes import arguments_of, as_list, located, name_of, one_loop, parsed

__all__ = ["FLOW", "Expressions"]

FLOW = f"{PREFIX}flow"
"""The variable that holds the module that converted code calls."""

_ITEM = f"{PREFIX}item"

_OF_LISTS = ("list", "tuple", "sum", "min", "max", "sorted")
"""Functions that read all items, so that a generator expression is as good as a list."""


class Expressions(ast.NodeTransformer):
    """Rewrites the expressions of one function.

    Args:
        file: The file of the function.
        names: Its variables.
        shared: The global variables that it assigns.
        first: Its first argument; None if it has none.
        functions: What the functions that it defines change, as :func:`changed_by_functions`.

    Attributes:
        tries: The number of ``try`` statements that catch errors around the current statement.
    """

    def __init__(
        self,
        file: str,
        names: set[str],
        shared: set[str],
        first: str | None,
        functions: Mapping[str, tuple[list[str], list[str]]],
    ) -> None:
        self._file = file
        self.names = names
        self.shared = shared
        self._first = first
        self.functions = functions
        self.tries = 0

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """``a if t else b``."""
        if binds(node):
            return node
        values = (ast.Lambda(arguments_of(), self.visit(value)) for value in (node.body, node.orelse))
        call = self.call("if_expression", self.visit(node.test), *values, self.site(node))
        return ast.copy_location(call, node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """``a and b``, ``a or b``."""
        if binds(node):
            return node
        simple = [is_simple(value) for value in node.values]
        operands: list[ast.expr] = [
            ast.Tuple([ast.Constant(cheap), ast.Lambda(arguments_of(), self.visit(value))], ast.Load())
            for cheap, value in zip(simple, node.values, strict=True)
        ]
        name = "all_of" if isinstance(node.op, ast.And) else "any_of"
        return ast.copy_location(self.call(name, self.site(node), *operands), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """``not a``."""
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return ast.copy_location(self.call("not_", operand), node)
        node.operand = operand
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        """A list comprehension."""
        first, *others = node.generators
        if isinstance(node.elt, ast.Constant) and not others and not first.ifs:
            count = self.call("builtin", ast.Constant("len"), name_of("len"), self.site(node))
            repeated = self.call(
                "repeated", ast.List([node.elt], ast.Load()), ast.Call(count, [self.visit(first.iter)], [])
            )
            return ast.copy_location(repeated, node)
        if not all(names_of(one.target, _ITEM) for one in node.generators) or binds(node):
            return self.generic_visit(node)
        return ast.copy_location(self._nested_list(node) if others else self.call("list_of", *self._items(node)), node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        """A generator expression with one ``for``."""
        if len(node.generators) > 1 or not names_of(node.generators[0].target, _ITEM) or binds(node):
            return self.generic_visit(node)
        return ast.copy_location(self.call("generated", *self._items(node)), node)

    def _nested_list(self, node: ast.ListComp) -> ast.Call:
        """A list comprehension with several ``for``: each loop adds to the list of the first."""
        rows = name_of(f"{PREFIX}rows")
        held = [self._held_by(node) for _ in node.generators]
        add = ast.Call(ast.Attribute(rows, "append", ast.Load()), [self.visit(node.elt)], [])
        for level, generator in reversed(list(enumerate(node.generators))):
            items = self._items_of(node, generator, held.pop(), add, rows.id)
            add = self.call("add_items", rows if level else ast.List([], ast.Load()), *items)
        return add

    def _items(self, node: ast.ListComp | ast.GeneratorExp) -> list[ast.expr]:
        """The place of a comprehension with one ``for``, its items, and functions of an item."""
        held = self._held_by(node)
        return self._items_of(node, node.generators[0], held, self.visit(node.elt))

    def _items_of(
        self, node: ast.expr, loop: ast.comprehension, held: ast.expr, element: ast.expr, *before: str
    ) -> list[ast.expr]:
        """The same of one of its loops; the function that makes an element takes the variables ``before`` first."""
        targets = names_of(loop.target, _ITEM)
        names = [name for name, _ in targets]
        # Python keeps the last of several values, as in `for a, _, _ in rows`.
        names = [name if name not in names[i + 1 :] else f"{PREFIX}{name}_{i}" for i, name in enumerate(names)]
        of_item: list[ast.expr] = [ast.Lambda(arguments_of(*before, *names), element)]
        if loop.ifs:
            test = loop.ifs[0] if len(loop.ifs) == 1 else ast.copy_location(ast.BoolOp(ast.And(), loop.ifs), node)
            of_item.append(ast.Lambda(arguments_of(*names), self.visit(test)))
        (parts,) = located(parsed(f"lambda {_ITEM}: [{', '.join(part for _, part in targets)}]"), node)
        return [self.site(node), self.visit(loop.iter), held, parts.value, *of_item]  # type: ignore[attr-defined]

    def _held_by(self, node: ast.ListComp | ast.GeneratorExp) -> ast.expr:
        """A function that returns what a comprehension may change in its iterations."""
        first, *others = node.generators
        return self.held([node.elt, *first.ifs, *(part for one in others for part in (one.iter, *one.ifs))])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """``a & b`` and the like, and ``[...] * n``."""
        self.generic_visit(node)
        if isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
            operator = ast.Constant(type(node.op).__name__)
            return ast.copy_location(self.call("combined", operator, node.left, node.right), node)
        if repeats_list(node):
            return ast.copy_location(self.call("repeated", node.left, node.right), node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """``a[i]`` that is read, and the indices of one that is written."""
        self.generic_visit(node)
        is_loaded = isinstance(node.ctx, ast.Load)
        if (
            isinstance(node.slice, ast.Tuple)
            and not isinstance(node.ctx, ast.Del)
            and not (is_loaded and looks_up(node))
        ):
            indices = self.flow("read_at" if is_loaded else "written_at")
            node.slice = ast.copy_location(ast.Subscript(indices, node.slice, ast.Load()), node)
        if is_loaded:
            return ast.copy_location(self.call("element", self.site(node), node.value, self.index(node.slice)), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """An f-string of values in their own format."""
        self.generic_visit(node)
        values = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
        has_format = any(
            getattr(part, "format_spec", None) or getattr(part, "conversion", -1) != -1 for part in node.values
        )
        return node if has_format else ast.copy_location(self.call("text", *values), node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        """A dict with keys that are no constants."""
        self.generic_visit(node)
        if not looks_up(node):
            return node
        items = zip(node.keys, node.values, strict=True)
        pairs = [ast.Tuple([key, value], ast.Load()) for key, value in items if key is not None]
        return ast.copy_location(self.call("dict_of", *pairs), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """``==``, ``is``, ``in``, and chains of comparisons."""
        if len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
            function, negated = COMPARED[type(node.ops[0])]
            sides = self.visit(node.left), self.visit(node.comparators[0])
            return ast.copy_location(self.call(function, *sides, ast.Constant(negated)), node)
        values = [node.left, *node.comparators]
        if len(node.ops) > 1 and all(map(is_simple, values[1:-1])):
            pairs = zip(values[:-1], node.ops, values[1:], strict=True)
            parts: list[ast.expr] = [ast.copy_location(ast.Compare(a, [op], [b]), node) for a, op, b in pairs]
            return self.visit_BoolOp(ast.copy_location(ast.BoolOp(ast.And(), parts), node))
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call of a function of Python, or of a method, that has a counterpart for tensors."""
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and self._first:
            node.args = [name_of("__class__"), name_of(self._first)]
            return node
        if isinstance(node.func, ast.Name) and node.func.id in _OF_LISTS:
            node.args = [as_list(argument) for argument in node.args]
        name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
        if name in ("any", "all") and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            items = one_loop(node, node.args[0])
            if names_of(items.generators[0].target, _ITEM) and not binds(items):
                call = self.call("quantified", ast.Constant(name), node.func, *self._items(items))
                return ast.copy_location(call, node)
        held = self.held([node]) if name in REPLACED else None
        self.generic_visit(node)
        if held is not None:
            node.func = self.call("builtin", ast.Constant(name), node.func, self.site(node), held)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in COMPARISONS:
            node.func = self.call("comparison", node.func.value, ast.Constant(node.func.attr))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in PARTS:
            node.func = self.call("of_parts", node.func.value, ast.Constant(node.func.attr))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in LOOKUPS:
            node.func = self.call("lookup", node.func.value, ast.Constant(node.func.attr), self.site(node))
        elif gets_attribute(node):
            return ast.copy_location(self.call("attribute", self.site(node), *node.args), node)
        else:
            node.func = self.call("with_lists", node.func)
        if has_conditions(node):
            node.func = self.call("with_conditions", node.func, self.site(node))
        return node

    def held(self, parts: Sequence[ast.expr]) -> ast.expr:
        """A function that returns what expressions, and lambdas in them, may change, by its name."""
        lambdas = [one.body for part in parts for one in ast.walk(part) if isinstance(one, ast.Lambda)]
        statements = [ast.Expr(part) for part in (*parts, *lambdas)]
        values = (f"{name!r}: {FLOW}.read(lambda: {name})" for name in self.holders(statements))
        (lambda_,) = located(parsed(f"lambda: {{{', '.join(values)}}}"), parts[0])
        return lambda_.value  # type: ignore[attr-defined, no-any-return]

    def holders(self, statements: Sequence[ast.stmt]) -> list[str]:
        """The variables whose contents or attributes the statements may change, also in functions that they call."""
        reads = loaded(statements)
        called = (names for name, (_, names) in self.functions.items() if reads[name])
        holders = dict.fromkeys([*touched(statements), *itertools.chain(*called)])
        return [name for name in holders if self.is_variable(name) or "." in name]

    def is_variable(self, name: str) -> bool:
        """Whether a variable, or what it is an attribute of, is one of the function or a global one."""
        return name.partition(".")[0] in self.names | self.shared

    def index(self, index: ast.expr) -> ast.expr:
        """The index of an element as an expression."""
        if not isinstance(index, ast.Slice):
            return index
        limits = [part or ast.Constant(None) for part in (index.lower, index.upper, index.step)]
        return self.call("slice", *limits)

    def flow(self, name: str) -> ast.expr:
        """A function that converted code calls."""
        return ast.Attribute(name_of(FLOW), name, ast.Load())

    def call(self, function: str, *arguments: ast.expr) -> ast.Call:
        """A call of such a function."""
        return ast.Call(self.flow(function), list(arguments), [])

    def site(self, node: ast.AST) -> ast.expr:
        """The place of a statement or an expression."""
        line = node.lineno  # type: ignore[attr-defined]
        raising = ast.Constant(self.tries > 0)
        return self.call("Site", ast.Constant(self._file), ast.Constant(line), raising)
