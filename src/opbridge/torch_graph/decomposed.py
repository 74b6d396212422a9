"""Decomposes a captured program, also where decompositions create constants, which torch 2.13 loses.

The internals of torch that this needs: ``_export_to_aten_ir`` and ``_materialize_and_lift_constants``, which torch 2.13
calls, and, of the operators ``cond`` and ``while_loop``, ``reenter_make_fx`` and ``materialize_as_graph``.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from opbridge.torch_graph.branch_shapes import apart, shapes_of_branches_apart
from opbridge.torch_graph.capture_faults import following_replaced_sizes
from opbridge.torch_graph.sources import SourceLine, source_of_node
from opbridge.torch_graph.targets import graph_modules, in_any_layout

__all__ = ["decomposed", "failing_line"]


def decomposed(
    program: torch.export.ExportedProgram, table: Mapping[Any, Callable[..., Any]]
) -> torch.export.ExportedProgram:
    """``program.run_decompositions(table)``.

    torch 2.13 lists a constant that a decomposition creates among the inputs of the new program, but gives the program
    only the constants of the old one: "Constant tensor lifted_tensor_0 is not in the constants dictionary".

    A view may be of a result whose layout differs after the decomposition: attention's result has the layout of its
    inputs, and what it decomposes to has its own.

    What a branch states about sizes is not true elsewhere. torch may need it there all the same, if it does not see
    that two sizes are equal on either path, or it may need the size after a branch as a function of the sizes before.
    """
    with _views_in_any_layout(program):
        for options in ({}, {"only_traced": True}):
            with contextlib.suppress(GuardOnDataDependentSymNode), _branches_apart(**options):
                return _decomposed(program, table)
        with _branches_apart(chosen_sizes=True):
            return _decomposed(program, table)


def failing_line(program: torch.export.ExportedProgram, error: BaseException) -> SourceLine | None:
    """The user's line of the node that torch was decomposing, which its message names; None if it names none."""
    found = re.search(r"While executing %(\w+)", str(error))
    nodes = (node for module in graph_modules(program) for node in module.graph.nodes)
    named = (source_of_node(node) for node in nodes if found is not None and node.name == found[1])
    return next(filter(None, named), None)


@contextlib.contextmanager
def _branches_apart(*, only_traced: bool = False, chosen_sizes: bool = False) -> Iterator[None]:
    """Decompose each branch and each loop inside the block without the facts that another states about sizes.

    torch runs a branch several times: to see whether it writes into its inputs, for the shapes of its results, and to
    trace it.

    Args:
        only_traced: Whether to forget only what is stated where a branch is traced.
        chosen_sizes: Whether a size after a branch is one of two, by the condition of the branch.
    """
    operators = (torch.ops.higher_order.cond, torch.ops.higher_order.while_loop)
    with contextlib.ExitStack() as stack:
        for one in operators:
            module: Any = importlib.import_module(type(one).__module__)
            reenter = _reentering_apart(module.reenter_make_fx)
            stack.enter_context(mock.patch.object(module, "reenter_make_fx", reenter))
        if not only_traced:
            stack.enter_context(shapes_of_branches_apart(chosen_sizes=chosen_sizes))
            stack.enter_context(following_replaced_sizes())
            utils: Any = importlib.import_module("torch._higher_order_ops.utils")
            materialize = apart(utils.materialize_as_graph)
            stack.enter_context(mock.patch.object(utils, "materialize_as_graph", materialize))
        yield


def _reentering_apart(reenter: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: apart(reenter(*args, **kwargs))


@contextlib.contextmanager
def _views_in_any_layout(program: torch.export.ExportedProgram) -> Iterator[None]:
    """Inside the block, ``view`` is ``reshape`` in the graph."""
    views = [
        node
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default)
    ]
    try:
        for node in views:
            node.target = in_any_layout(node.target)
        yield
    finally:
        for node in views:
            node.target = torch.ops.aten.view.default


def _decomposed(
    program: torch.export.ExportedProgram, table: Mapping[Any, Callable[..., Any]]
) -> torch.export.ExportedProgram:
    if torch.__version__ >= "2.14":
        return program.run_decompositions(dict(table))
    from torch._export.passes import lift_constants_pass
    from torch.export import _trace

    own = copy.copy(program)
    own._constants = dict(program.constants)
    lift, trace = lift_constants_pass._materialize_and_lift_constants, _trace._export_to_aten_ir

    def lifted(*arguments: Any) -> Any:
        found = lift(*arguments)
        own._constants.update(found)
        return found

    def traced(*arguments: Any, **options: Any) -> Any:
        found = trace(*arguments, **options)
        own._constants.update(found.constants)
        return found

    with (
        mock.patch.object(lift_constants_pass, "_materialize_and_lift_constants", lifted),
        mock.patch.object(_trace, "_export_to_aten_ir", traced),
    ):
        return own.run_decompositions(dict(table))
