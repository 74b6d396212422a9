"""Opaque aliases of composite operators that have a translation, for the time of the decomposition.

torch decomposes some of them (``reshape``, ``batch_norm``) regardless of the table of decompositions. It does not
decompose an opaque alias, which is a custom operator with another name.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from opbridge.ladder.steps import has_complex_input
from opbridge.torch_graph.targets import graph_modules, target_key
from opbridge.torch_graph.vmap_regions import nodes_outside_vmap

__all__ = ["under_opaque_aliases"]

_NAMESPACE = "opbridge_kept"


@contextlib.contextmanager
def under_opaque_aliases(program: torch.export.ExportedProgram, keys: Collection[str]) -> Iterator[dict[str, str]]:
    """Replace composite operators inside the block by opaque aliases, which torch does not decompose.

    Args:
        program: The program, which is changed inside the block and restored afterwards.
        keys: The target keys of the operators to keep.

    Yields:
        The target key of each operator that has an alias in the program, by the alias's target key.
    """
    swapped: list[tuple[torch.fx.Node, Any]] = []
    originals: dict[str, str] = {}
    for module in graph_modules(program):
        for node in nodes_outside_vmap(module.graph):  # torch.vmap knows no alias.
            target: Any = node.target
            is_wanted = node.op == "call_function" and target_key(target) in keys
            # torch.onnx uses only its own mappings for complex tensors, so these operators are decomposed.
            if is_wanted and target._can_decompose() and not has_complex_input(node):
                swapped.append((node, target))
    try:
        for node, overload in swapped:
            node.target = _twin(overload)
            originals[str(target_key(node.target))] = str(target_key(overload))
        _recompile(program, swapped)
        yield originals
    finally:
        for node, overload in swapped:
            node.target = overload
        _recompile(program, swapped)


def _recompile(program: torch.export.ExportedProgram, swapped: list[tuple[torch.fx.Node, Any]]) -> None:
    if swapped:
        for module in graph_modules(program):
            module.recompile()


@functools.cache
def _library() -> torch.library.Library:
    return torch.library.Library(_NAMESPACE, "FRAGMENT")


@functools.cache
def _twin(overload: torch._ops.OpOverload) -> torch._ops.OpOverload:
    name = re.sub(r"\W", "_", str(target_key(overload)))
    signature = str(overload._schema).partition("(")[2]
    _library().define(f"{name}({re.sub(r'Tensor[(][^)]*[)]', 'Tensor', signature)}")
    _library().impl(name, _fresh(overload), "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_NAMESPACE}::{name}", _fresh(overload), lib=_library())
    return getattr(getattr(torch.ops, _NAMESPACE), name).default


def _fresh(overload: torch._ops.OpOverload) -> Callable[..., Any]:
    """The operator with results that share no memory with its inputs, as the schema of the alias promises."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        return tree_map_only(torch.Tensor, lambda value: value.clone(), overload(*args, **kwargs))

    return compute
