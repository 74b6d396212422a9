"""Rewrites a function's source: its branches, loops and conditions become calls that also take tensors.

::

    if x.sum() > 0:            def body():
        y = x                      nonlocal y
    else:                          y = x
        y = -x         ->      def orelse(): ...
                               flow.if_(x.sum() > 0, body, orelse, State(("y",), get, set), site)

Every new node has the line number of the statement that it comes from, so that tracebacks and source lines are those of
the original file.
"""

from __future__ import annotations

import ast
import collections
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from opbridge.capture.control_flow.appends import ListsByAppend
from opbridge.capture.control_flow.bounds import note_bounds
from opbridge.capture.control_flow.exits import PREFIX, lowered, with_rest_inside
from opbridge.capture.control_flow.expressions import COMPARED, binds, has_no_result, is_simple
from opbridge.capture.control_flow.liveness import read_after_branches, set_in_each_iteration
from opbridge.capture.control_flow.messages import Messages
from opbridge.capture.control_flow.names import (
    COMPARISONS,
    LOOKUPS,
    PARTS,
    REPLACED,
    assigned,
    changed_by_functions,
    inside,
    is_temporary,
    loaded,
    locals_of,
    looks_up,
    names_of,
    repeats_list,
    touched,
)
from opbridge.capture.control_flow.nodes import arguments_of, as_list, assignments, located, name_of, parsed, strings
from opbridge.capture.control_flow.runs import run_for_each_outcome

__all__ = ["converted"]

_FLOW = f"{PREFIX}flow"


def converted(
    function: ast.FunctionDef, file: str, ends: Collection[int] = (), below: Collection[tuple[str, int, bool]] = ()
) -> None:
    """Rewrite a function in place; what follows the ``if`` statements on the lines ``ends`` moves into them.

    It runs once for each outcome of the ``if`` statements ``below``, which are in functions that it calls.
    """
    first = function.body[0]
    function.body = with_rest_inside(function.body, ends)
    ListsByAppend(_FLOW).visit(function)
    Messages(_FLOW).visit(function)
    note_bounds(function)
    body = lowered(function)
    own = ast.FunctionDef(function.name, function.args, body, [], None)
    names, shared = locals_of(own)
    arguments = [*function.args.posonlyargs, *function.args.args]
    tests = [node.goes_on for one in body for node in ast.walk(one) if hasattr(node, "goes_on")]
    nonlocal_names = {name for node in inside(body) if isinstance(node, ast.Nonlocal) for name in node.names}
    after = read_after_branches(body, {*shared, *nonlocal_names, *loaded(tests)})
    reads = loaded([ast.Module(body, []), *tests])
    first_argument = arguments[0].arg if arguments else None
    rewrite = _Function(file, names, shared, reads, after, first_argument, changed_by_functions(body))
    head = parsed(f"from opbridge.capture.control_flow import flow as {_FLOW}")
    parameters, _ = locals_of(ast.FunctionDef(function.name, function.args, [], [], None))
    declared = sorted(names - parameters - nonlocal_names)
    # A variable that is assigned in a nested function only must be one of this function.
    head += parsed(f"if 0: {' = '.join(declared)} = None") if declared else []
    statements = rewrite.block(body)
    docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and first is body[0]
    declarations = [one for one in statements if isinstance(one, (ast.Nonlocal, ast.Global))]
    others = [one for one in statements if one not in declarations]
    front, others = (others[:1], others[1:]) if docstring else ([], others)
    function.body = [*front, *declarations, *located(head, first), *others]
    if below:
        function.body = located([*head[:1], *run_for_each_outcome(function, _FLOW, below)], first)


class _Function(ast.NodeTransformer):
    """Rewrites the statements of one function."""

    def __init__(
        self,
        file: str,
        names: set[str],
        shared: set[str],
        reads: collections.Counter[str],
        after: Mapping[int, frozenset[str] | None],
        first: str | None,
        functions: Mapping[str, tuple[list[str], list[str]]],
    ) -> None:
        self._file = file
        self._names = names
        self._shared = shared
        self._reads = reads
        self._after = after
        self._first = first
        self._functions = functions
        self._numbers = itertools.count()
        self._tries = 0

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The rewritten statements."""
        found: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            found += new if isinstance(new, list) else [new]
        return found

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_With(self, node: ast.With) -> ast.AST:
        node.items = [self.visit(item) for item in node.items]
        node.body = self.block(node.body)
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        self._tries += bool(node.handlers)
        node.body = self.block(node.body)
        self._tries -= bool(node.handlers)
        for handler in node.handlers:
            handler.body = self.block(handler.body)
        node.orelse, node.finalbody = self.block(node.orelse), self.block(node.finalbody)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # An annotated name can't be nonlocal.
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([self.visit(node.target)], self.visit(node.value)), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0] if len(node.targets) == 1 else None
        if isinstance(target, ast.Subscript) and (_is_plain(target.slice) or looks_up(target)):
            parts = (self.visit(part) for part in (target.value, target.slice, node.value))
            return ast.copy_location(ast.Expr(self._call("assign", *parts)), node)
        if isinstance(target, (ast.Tuple, ast.List)) and not isinstance(node.value, (ast.Tuple, ast.List)):
            starred = [index for index, part in enumerate(target.elts) if isinstance(part, ast.Starred)]
            count = ast.Constant(len(target.elts))
            self.generic_visit(node)
            node.value = self._call("unpacked", node.value, count, ast.Constant(starred[0] if starred else None))
            return node
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        test = self.visit(node.test)
        for skipped, holds in ((node.body, False), (node.orelse, True)):
            if skipped and has_no_result(skipped):
                # Python decides where it can; elsewhere the program goes on as if nothing were wrong.
                text = ast.Constant(f"if {ast.unparse(node.test)}")
                raises = ast.Constant(isinstance(skipped[-1], ast.Raise))
                guard = self._call("passes", test, ast.Constant(holds), text, raises, self._site(node))
                blocks = (self.block(node.body), self.block(node.orelse))
                return located([ast.If(guard, *blocks)], node)
        number = next(self._numbers)
        parts, state = self._state([node], number)
        body = self._nested(f"{PREFIX}body_{number}", self.block(node.body), [node])
        orelse = self._nested(f"{PREFIX}else_{number}", self.block(node.orelse), [node])
        call = ast.Expr(self._call("if_", test, name_of(body.name), name_of(orelse.name), state, self._site(node)))
        return located([*parts, body, orelse, call], node)

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        number = next(self._numbers)
        parts, state = self._state([node], number)
        test = ast.Lambda(arguments_of(), self.visit(node.test))
        body = self._nested(f"{PREFIX}body_{number}", self.block(node.body), [node])
        bounds = [ast.Lambda(arguments_of(), self.visit(bound)) for bound in node.bounds]  # type: ignore[attr-defined]
        call = ast.Expr(self._call("while_", test, name_of(body.name), state, self._site(node), *bounds))
        loop = located([*parts, body, call], node)
        return loop + (self.block(node.orelse) if node.orelse else [])

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        number = next(self._numbers)
        parts, state = self._state([node], number)
        iterable = self.visit(node.iter)
        goes_on = getattr(node, "goes_on", None)
        test: ast.expr = ast.Lambda(arguments_of(), self.visit(goes_on)) if goes_on else ast.Constant(None)
        target = located([ast.Assign([node.target], name_of(f"{PREFIX}item"))], node)
        body = self._nested(f"{PREFIX}body_{number}", [*target, *self.block(node.body)], [node])
        body.args = arguments_of(f"{PREFIX}item")
        call = ast.Expr(self._call("for_", iterable, name_of(body.name), test, state, self._site(node)))
        loop = located([*parts, body, call], node)
        return loop + (self.block(node.orelse) if node.orelse else [])

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        text = ast.Constant(f"assert {ast.unparse(node.test)}")
        guard = self._call(
            "passes", self.visit(node.test), ast.Constant(True), text, ast.Constant(True), self._site(node)
        )
        error = ast.Call(name_of("AssertionError"), [node.msg] if node.msg else [], [])
        return located([ast.If(ast.UnaryOp(ast.Not(), guard), [ast.Raise(error, None)], [])], node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        if binds(node):
            return node
        values = (ast.Lambda(arguments_of(), self.visit(value)) for value in (node.body, node.orelse))
        call = self._call("if_expression", self.visit(node.test), *values, self._site(node))
        return ast.copy_location(call, node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        if binds(node):
            return node
        simple = [is_simple(value) for value in node.values]
        operands: list[ast.expr] = [
            ast.Tuple([ast.Constant(cheap), ast.Lambda(arguments_of(), self.visit(value))], ast.Load())
            for cheap, value in zip(simple, node.values, strict=True)
        ]
        name = "all_of" if isinstance(node.op, ast.And) else "any_of"
        return ast.copy_location(self._call(name, self._site(node), *operands), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return ast.copy_location(self._call("not_", operand), node)
        node.operand = operand
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        (first, *others), names, held = node.generators, names_of(node.generators[0].target), self._held(node)
        if isinstance(node.elt, ast.Constant) and not others and not first.ifs:
            count = self._call("builtin", ast.Constant("len"), name_of("len"))
            repeated = self._call(
                "repeated", ast.List([node.elt], ast.Load()), ast.Call(count, [self.visit(first.iter)], [])
            )
            return ast.copy_location(repeated, node)
        if others or not names or binds(node):
            return self.generic_visit(node)
        of_item: list[ast.expr] = [ast.Lambda(arguments_of(*names), self.visit(node.elt))]
        if first.ifs:
            test = first.ifs[0] if len(first.ifs) == 1 else ast.copy_location(ast.BoolOp(ast.And(), first.ifs), node)
            of_item.append(ast.Lambda(arguments_of(*names), self.visit(test)))
        are_tuples = ast.Constant(isinstance(first.target, ast.Tuple))
        call = self._call("list_of", self._site(node), self.visit(first.iter), held, are_tuples, *of_item)
        return ast.copy_location(call, node)

    def _held(self, node: ast.ListComp) -> ast.expr:
        """A function that returns what the elements of a list may change, by its name."""
        statements = [ast.Expr(part) for part in (node.elt, *node.generators[0].ifs)]
        values = (f"{name!r}: {_FLOW}.read(lambda: {name})" for name in self._holders(statements))
        (lambda_,) = located(parsed(f"lambda: {{{', '.join(values)}}}"), node)
        return lambda_.value  # type: ignore[attr-defined, no-any-return]

    def _holders(self, statements: Sequence[ast.stmt]) -> list[str]:
        """The variables whose contents or attributes the statements may change, also in functions that they call."""
        reads = loaded(statements)
        called = (names for name, (_, names) in self._functions.items() if reads[name])
        holders = dict.fromkeys([*touched(statements), *itertools.chain(*called)])
        return [name for name in holders if self._is_variable(name) or "." in name]

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
            operator = ast.Constant(type(node.op).__name__)
            return ast.copy_location(self._call("combined", operator, node.left, node.right), node)
        if repeats_list(node):
            return ast.copy_location(self._call("repeated", node.left, node.right), node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        is_loaded = isinstance(node.ctx, ast.Load)
        if (
            isinstance(node.slice, ast.Tuple)
            and not isinstance(node.ctx, ast.Del)
            and not (is_loaded and looks_up(node))
        ):
            indices = self._flow("read_at" if is_loaded else "written_at")
            node.slice = ast.copy_location(ast.Subscript(indices, node.slice, ast.Load()), node)
        if is_loaded:
            index = node.slice
            if isinstance(index, ast.Slice):
                limits = [part or ast.Constant(None) for part in (index.lower, index.upper, index.step)]
                index = self._call("slice", *limits)
            return ast.copy_location(self._call("element", self._site(node), node.value, index), node)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        if not looks_up(node):
            return node
        items = zip(node.keys, node.values, strict=True)
        pairs = [ast.Tuple([key, value], ast.Load()) for key, value in items if key is not None]
        return ast.copy_location(self._call("dict_of", *pairs), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
            function, negated = COMPARED[type(node.ops[0])]
            sides = self.visit(node.left), self.visit(node.comparators[0])
            return ast.copy_location(self._call(function, *sides, ast.Constant(negated)), node)
        values = [node.left, *node.comparators]
        if len(node.ops) > 1 and all(map(is_simple, values[1:-1])):
            pairs = zip(values[:-1], node.ops, values[1:], strict=True)
            parts: list[ast.expr] = [ast.copy_location(ast.Compare(a, [op], [b]), node) for a, op, b in pairs]
            return self.visit_BoolOp(ast.copy_location(ast.BoolOp(ast.And(), parts), node))
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and self._first:
            node.args = [name_of("__class__"), name_of(self._first)]
            return node
        if isinstance(node.func, ast.Name) and node.func.id in _OF_LISTS:
            node.args = [as_list(argument) for argument in node.args]
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in REPLACED:
            node.func = self._call("builtin", ast.Constant(node.func.id), node.func)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in COMPARISONS:
            node.func = self._call("comparison", node.func.value, ast.Constant(node.func.attr))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in PARTS:
            node.func = self._call("of_parts", node.func.value, ast.Constant(node.func.attr))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in LOOKUPS:
            node.func = self._call("lookup", node.func.value, ast.Constant(node.func.attr), self._site(node))
        return node

    def _flow(self, name: str) -> ast.expr:
        return ast.Attribute(name_of(_FLOW), name, ast.Load())

    def _call(self, function: str, *arguments: ast.expr) -> ast.Call:
        return ast.Call(self._flow(function), list(arguments), [])

    def _site(self, node: ast.AST) -> ast.expr:
        line = node.lineno  # type: ignore[attr-defined]
        raising = ast.Constant(self._tries > 0)
        return self._call("Site", ast.Constant(self._file), ast.Constant(line), raising)

    def _state(self, statements: list[ast.stmt], number: int) -> tuple[list[ast.stmt], ast.expr]:
        """The functions that read and assign the variables of a statement, and the call that makes its state."""
        reads = loaded(statements)
        called = (names for name, (names, _) in self._functions.items() if reads[name])
        changed = [*assigned(statements), *itertools.chain(*called)]
        changed = [name for name in dict.fromkeys(changed) if self._is_variable(name)]
        dead: list[str] = []
        if isinstance(statements[0], ast.If):
            blocks = (statements[0].body, statements[0].orelse)
            after = self._after[id(statements[0])]
            dead = [name for name in changed if "." not in name and after is not None and name not in after]
            changed = [name for name in changed if name not in dead or not is_temporary(name, blocks)]
        holders = self._holders(statements)
        get, assign, held = (f"{PREFIX}{part}_{number}" for part in ("get", "set", "held"))
        values = ", ".join(f"{_FLOW}.read(lambda: {name})" for name in changed)
        source = [f"def {get}(): return [{values}]", f"def {assign}({PREFIX}values):"]
        source += [f" {keyword} {', '.join(names)}" for keyword, names in self._declarations(changed) if names]
        source += [f" {line}" for line in assignments(changed, f"{PREFIX}values", _FLOW)]
        values = ", ".join(f"{_FLOW}.read(lambda: {name})" for name in holders)
        source.append(f"def {held}(): return [{values}]")
        inner = [name for name in changed if "." not in name and reads[name] >= self._reads[name]]
        temporary = set_in_each_iteration(statements[0], inner)
        state = self._call(
            "State",
            strings(changed),
            name_of(get),
            name_of(assign),
            strings(holders),
            name_of(held),
            self._call("frozenset", strings(inner)),
            self._call("frozenset", strings(temporary)),
            self._call("frozenset", strings(dead)),
        )
        return parsed("\n".join(source)), state

    def _is_variable(self, name: str) -> bool:
        return name.partition(".")[0] in self._names | self._shared

    def _declarations(self, names: Iterable[str]) -> list[tuple[str, list[str]]]:
        plain = [name for name in names if "." not in name]
        return [
            ("nonlocal", [name for name in plain if name in self._names]),
            ("global", [name for name in plain if name in self._shared]),
        ]

    def _nested(self, name: str, body: list[ast.stmt], statements: list[ast.stmt]) -> ast.FunctionDef:
        """A function without arguments that runs statements of this function on its variables."""
        declared = [
            (ast.Nonlocal if keyword == "nonlocal" else ast.Global)(names)
            for keyword, names in self._declarations(assigned(statements))
            if names
        ]
        return ast.FunctionDef(name, arguments_of(), [*declared, *(body or [ast.Pass()])], [], None)


_OF_LISTS = ("list", "tuple", "sum", "min", "max")
"""Functions that read all items, so that a generator expression is as good as a list."""


def _is_plain(index: ast.expr) -> bool:
    return not isinstance(index, (ast.Tuple, ast.Slice))
