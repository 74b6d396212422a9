"""Operators of torch.library in Python without a mapping are replaced by what their functions compute."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any

import torch

from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.spec import OpSpec
from opbridge.torch_graph.custom_ops import python_implementations
from opbridge.torch_graph.targets import target_key

__all__ = ["with_implementations"]


def with_implementations(catalog: Catalog, mapped: Collection[Any]) -> Catalog:
    """The catalog, with a decomposition for each such operator.

    Args:
        catalog: The mappings so far, which take precedence.
        mapped: The keys of the operators that torch.onnx maps.
    """
    functions = python_implementations()
    unmapped = [one for one in functions if target_key(one) not in mapped and catalog.find(one) is None]
    return catalog.extended([_spec(one, functions[one]) for one in unmapped])


def _spec(overload: torch._ops.OpOverload, function: Callable[..., Any]) -> OpSpec:
    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:
            # It is not written in torch operators alone: the operator has no mapping.
            return NotImplemented

    code = getattr(inspect.unwrap(function), "__code__", None)
    source = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    return OpSpec(target_key(overload), "decompose", traced, source=source)
