"""Decomposes a captured program, also where decompositions create constants, which torch 2.13 loses."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch

from opbridge.torch_graph.targets import in_any_layout

__all__ = ["decomposed"]


def decomposed(
    program: torch.export.ExportedProgram, table: Mapping[Any, Callable[..., Any]]
) -> torch.export.ExportedProgram:
    """``program.run_decompositions(table)``.

    torch 2.13 lists a constant that a decomposition creates among the inputs of the new program, but gives the program
    only the constants of the old one: "Constant tensor lifted_tensor_0 is not in the constants dictionary".

    A view may be of a result whose layout differs after the decomposition: attention's result has the layout of its
    inputs, and what it decomposes to has its own.
    """
    with _views_in_any_layout(program):
        return _decomposed(program, table)


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
