"""Rewrites a function so that it runs once for each outcome of ``if`` statements in functions that it calls."""

from __future__ import annotations

import ast
from collections.abc import Collection

from opbridge.capture.control_flow.exits import PREFIX
from opbridge.capture.control_flow.nodes import name_of, parsed

__all__ = ["run_for_each_outcome"]


def run_for_each_outcome(
    function: ast.FunctionDef, flow: str, sites: Collection[tuple[str, int, bool]]
) -> list[ast.stmt]:
    """The statements that run the body of a function for each outcome.

    Args:
        function: The function.
        flow: The variable that holds the module that converted code calls.
        sites: The places of the ``if`` statements: the arguments of ``Site``.
    """
    own = function.args
    positional = [one.arg for one in (*own.posonlyargs, *own.args)]
    named = [one.arg for one in own.kwonlyargs]
    rest = [one.arg for one in (own.vararg, own.kwarg) if one]
    arguments = ast.arguments(
        [ast.arg(one.arg) for one in own.posonlyargs],
        [ast.arg(one.arg) for one in own.args],
        ast.arg(own.vararg.arg) if own.vararg else None,
        [ast.arg(name) for name in named],
        [None] * len(named),
        ast.arg(own.kwarg.arg) if own.kwarg else None,
        [],
    )
    run = ast.FunctionDef(f"{PREFIX}run", arguments, function.body, [], None)
    given: list[ast.expr] = [name_of(name) for name in positional]
    given += [ast.Starred(name_of(own.vararg.arg), ast.Load())] if own.vararg else []
    keywords = [ast.keyword(name, name_of(name)) for name in named]
    keywords += [ast.keyword(None, name_of(own.kwarg.arg))] if own.kwarg else []
    values = ", ".join(f"{name!r}: {name}" for name in (*positional, *named, *rest))
    places = ", ".join(f"{flow}.Site(*{site!r})" for site in sites)
    (whole,) = parsed(f"return {flow}.for_each_outcome(lambda: None, {{{values}}}, {places})")
    whole.value.args[0].body = ast.Call(name_of(run.name), given, keywords)  # type: ignore[attr-defined]
    return [run, whole]
