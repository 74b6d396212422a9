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
from opbridge.capture.control_flow.expressions import has_no_result
from opbridge.capture.control_flow.generators import returning_list, without_yield, yields
from opbridge.capture.control_flow.liveness import read_after_branches, set_in_each_iteration
from opbridge.capture.control_flow.messages import Messages
from opbridge.capture.control_flow.names import (
    assigned,
    changed_by_functions,
    inside,
    is_temporary,
    loaded,
    locals_of,
    looks_up,
)
from opbridge.capture.control_flow.nodes import arguments_of, assignments, located, name_of, parsed, strings
from opbridge.capture.control_flow.runs import run_for_each_outcome
from opbridge.capture.control_flow.searches import with_searches
from opbridge.capture.control_flow.transform_expressions import FLOW, Expressions
from opbridge.capture.control_flow.walrus import without_walrus

__all__ = ["converted"]


def converted(
    function: ast.FunctionDef, file: str, ends: Collection[int] = (), below: Collection[tuple[str, int, bool]] = ()
) -> None:
    """Rewrite a function in place; what follows the ``if`` statements on the lines ``ends`` moves into them.

    It runs once for each outcome of the ``if`` statements ``below``, which are in functions that it calls.
    """
    first = function.body[0]
    is_generator = yields(function)
    function.body = with_rest_inside(with_searches(without_yield(function, file, FLOW)), ends)
    ListsByAppend(FLOW).visit(function)
    Messages(FLOW).visit(function)
    note_bounds(function)
    function.body = without_walrus(function.body)
    body = lowered(function)
    if is_generator:
        body = returning_list(body, FLOW)
    own = ast.FunctionDef(function.name, function.args, body, [], None)
    names, shared = locals_of(own)
    arguments = [*function.args.posonlyargs, *function.args.args]
    tests = [node.goes_on for one in body for node in ast.walk(one) if hasattr(node, "goes_on")]
    nonlocal_names = {name for node in inside(body) if isinstance(node, ast.Nonlocal) for name in node.names}
    after = read_after_branches(body, {*shared, *nonlocal_names, *loaded(tests)})
    reads = loaded([ast.Module(body, []), *tests])
    first_argument = arguments[0].arg if arguments else None
    rewrite = _Function(file, names, shared, reads, after, first_argument, changed_by_functions(body))
    head = parsed(f"from opbridge.capture.control_flow import flow as {FLOW}")
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
        function.body = located([*head[:1], *run_for_each_outcome(function, FLOW, below)], first)


class _Function(Expressions):
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
        super().__init__(file, names, shared, first, functions)
        self._reads = reads
        self._after = after
        self._numbers = itertools.count()

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

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if node.value is not None:
            node.value = ast.copy_location(self.call("returned", self.visit(node.value)), node)
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        node.items = [self.visit(item) for item in node.items]
        node.body = self.block(node.body)
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        self.tries += bool(node.handlers)
        node.body = self.block(node.body)
        self.tries -= bool(node.handlers)
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
            return ast.copy_location(ast.Expr(self.call("assign", *parts)), node)
        if isinstance(target, (ast.Tuple, ast.List)) and not isinstance(node.value, (ast.Tuple, ast.List)):
            starred = [index for index, part in enumerate(target.elts) if isinstance(part, ast.Starred)]
            count = ast.Constant(len(target.elts))
            self.generic_visit(node)
            node.value = self.call("unpacked", node.value, count, ast.Constant(starred[0] if starred else None))
            return node
        return self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                call = self.call("delete", self.visit(target.value), self.index(self.visit(target.slice)))
                found.append(ast.copy_location(ast.Expr(call), node))
            else:
                found.append(ast.copy_location(ast.Delete([target]), node))
        return found

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        test = self.visit(node.test)
        for skipped, holds in ((node.body, False), (node.orelse, True)):
            if skipped and has_no_result(skipped):
                # Python decides where it can; elsewhere the program goes on as if nothing were wrong.
                text = ast.Constant(f"if {ast.unparse(node.test)}")
                raises = ast.Constant(isinstance(skipped[-1], ast.Raise))
                guard = self.call("passes", test, ast.Constant(holds), text, raises, self.site(node))
                blocks = (self.block(node.body), self.block(node.orelse))
                return located([ast.If(guard, *blocks)], node)
        number = next(self._numbers)
        parts, state = self._state([node], number)
        body = self._nested(f"{PREFIX}body_{number}", self.block(node.body), [node])
        orelse = self._nested(f"{PREFIX}else_{number}", self.block(node.orelse), [node])
        call = ast.Expr(self.call("if_", test, name_of(body.name), name_of(orelse.name), state, self.site(node)))
        return located([*parts, body, orelse, call], node)

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        number = next(self._numbers)
        parts, state = self._state([node], number)
        test = ast.Lambda(arguments_of(), self.visit(node.test))
        body = self._nested(f"{PREFIX}body_{number}", self.block(node.body), [node])
        bounds = [ast.Lambda(arguments_of(), self.visit(bound)) for bound in node.bounds]  # type: ignore[attr-defined]
        call = ast.Expr(self.call("while_", test, name_of(body.name), state, self.site(node), *bounds))
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
        call = ast.Expr(self.call("for_", iterable, name_of(body.name), test, state, self.site(node)))
        loop = located([*parts, body, call], node)
        return loop + (self.block(node.orelse) if node.orelse else [])

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        text = ast.Constant(f"assert {ast.unparse(node.test)}")
        guard = self.call(
            "passes", self.visit(node.test), ast.Constant(True), text, ast.Constant(True), self.site(node)
        )
        error = ast.Call(name_of("AssertionError"), [node.msg] if node.msg else [], [])
        return located([ast.If(ast.UnaryOp(ast.Not(), guard), [ast.Raise(error, None)], [])], node)

    def _state(self, statements: list[ast.stmt], number: int) -> tuple[list[ast.stmt], ast.expr]:
        """The functions that read and assign the variables of a statement, and the call that makes its state."""
        reads = loaded(statements)
        called = (names for name, (names, _) in self.functions.items() if reads[name])
        changed = [*assigned(statements), *itertools.chain(*called)]
        changed = [name for name in dict.fromkeys(changed) if self.is_variable(name)]
        dead: list[str] = []
        if isinstance(statements[0], ast.If):
            blocks = (statements[0].body, statements[0].orelse)
            after = self._after[id(statements[0])]
            dead = [name for name in changed if "." not in name and after is not None and name not in after]
            changed = [name for name in changed if name not in dead or not is_temporary(name, blocks)]
        holders = self.holders(statements)
        get, assign, held = (f"{PREFIX}{part}_{number}" for part in ("get", "set", "held"))
        values = ", ".join(f"{FLOW}.read(lambda: {name})" for name in changed)
        source = [f"def {get}(): return [{values}]", f"def {assign}({PREFIX}values):"]
        source += [f" {keyword} {', '.join(names)}" for keyword, names in self._declarations(changed) if names]
        source += [f" {line}" for line in assignments(changed, f"{PREFIX}values", FLOW)]
        values = ", ".join(f"{FLOW}.read(lambda: {name})" for name in holders)
        source.append(f"def {held}(): return [{values}]")
        inner = [name for name in changed if "." not in name and reads[name] >= self._reads[name]]
        temporary = set_in_each_iteration(statements[0], inner)
        state = self.call(
            "State",
            strings(changed),
            name_of(get),
            name_of(assign),
            strings(holders),
            name_of(held),
            self.call("frozenset", strings(inner)),
            self.call("frozenset", strings(temporary)),
            self.call("frozenset", strings(dead)),
        )
        return parsed("\n".join(source)), state

    def _declarations(self, names: Iterable[str]) -> list[tuple[str, list[str]]]:
        plain = [name for name in names if "." not in name]
        return [
            ("nonlocal", [name for name in plain if name in self.names]),
            ("global", [name for name in plain if name in self.shared]),
        ]

    def _nested(self, name: str, body: list[ast.stmt], statements: list[ast.stmt]) -> ast.FunctionDef:
        """A function without arguments that runs statements of this function on its variables."""
        declared = [
            (ast.Nonlocal if keyword == "nonlocal" else ast.Global)(names)
            for keyword, names in self._declarations(assigned(statements))
            if names
        ]
        return ast.FunctionDef(name, arguments_of(), [*declared, *(body or [ast.Pass()])], [], None)


def _is_plain(index: ast.expr) -> bool:
    return not isinstance(index, (ast.Tuple, ast.Slice))
