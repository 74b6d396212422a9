"""Collects the rules for complex tensors, and adds them to the table with which torch decomposes a program.

Engines have no kernels for complex tensors. A rule computes with the real and the imaginary parts, in torch operators
that are decomposed and mapped in turn. It applies only to calls with a complex tensor or number; other calls use the
catalog's and torch's mappings of the operator.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import torch
from torch.utils import _pytree as pytree

import opbridge.catalog.complex as package
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.targets import target_key

__all__ = ["Rule", "complex_rule", "is_complex_call", "rules", "with_complex_rules"]

F = TypeVar("F", bound=Callable[..., Any])
Table = Mapping[Any, Callable[..., Any]]

_ATTRIBUTE = "__opbridge_complex_targets__"


@dataclasses.dataclass(frozen=True)
class Rule:
    """The rule that computes one operator on complex tensors by real tensors.

    Attributes:
        overload: The torch operator.
        function: The rule, which takes the operator's arguments.
        of_real: Whether the operator creates complex tensors from real ones, so that the rule applies to every call.
    """

    overload: torch._ops.OpOverload
    function: Callable[..., Any]
    of_real: bool = False


def complex_rule(*targets: str, takes_overload: bool = False, of_real: bool = False) -> Callable[[F], F]:
    """Declare a function as the rule of these operators for complex tensors.

    Args:
        targets: The operators: ``"aten::mul.Tensor"``. Operators that this version of torch does not have are skipped.
        takes_overload: Whether the function receives the called operator as its first argument.
        of_real: Whether the operator creates complex tensors from real ones, so that the rule applies to every call.
            Any rule may return ``NotImplemented`` for a call that it does not handle.
    """

    def decorate(function: F) -> F:
        setattr(function, _ATTRIBUTE, (targets, takes_overload, of_real))
        return function

    return decorate


@functools.cache
def rules() -> Mapping[str, Rule]:
    """All rules in this folder, by the operator's target key."""
    found: dict[str, Rule] = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for function in filter(callable, vars(module).values()):
            targets, takes_overload, of_real = getattr(function, _ATTRIBUTE, ((), False, False))
            for overload in filter(None, map(_overload, targets)):
                bound = functools.partial(function, overload) if takes_overload else function
                found[str(target_key(overload))] = Rule(overload, bound, of_real)
    return found


def _overload(target: str) -> torch._ops.OpOverload | None:
    namespace, _, name = target.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.partition(".")[0], None)
    wanted = name.partition(".")[2] or "default"
    return getattr(packet, wanted) if packet is not None and wanted in packet.overloads() else None


def is_complex_call(args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether a tensor, a number or a type among the arguments is complex."""
    return any(
        leaf.dtype.is_complex
        if isinstance(leaf, torch.Tensor)
        else leaf.is_complex
        if isinstance(leaf, torch.dtype)
        else isinstance(leaf, complex)
        for leaf in pytree.tree_leaves((args, dict(kwargs)))
    )


def with_complex_rules(table: Table, kept: Collection[Any], replaced: Collection[str]) -> dict[Any, Callable[..., Any]]:
    """A table of decompositions with the rules for complex tensors.

    Args:
        table: The decompositions by operator; the table is not changed.
        kept: The target keys of operators that are not decomposed for real tensors. For complex tensors they are
            decomposed if torch can do that and has no mapping for them.
        replaced: The target keys of operators to skip, because the user maps them.
    """
    result = dict(table)
    left = {*replaced, *(torch_internals.mapped_targets(complex_inputs=True).keys() - _COMPOSITES)}
    for overload, function in _of_torch().items():
        key, own = target_key(overload), table.get(overload)
        if key not in left and (own is not None or key in kept) and own is not function:
            result[overload] = _either(function, None) if own is None else _first(own, function)
    for key, rule in rules().items():
        if key not in replaced:
            result[rule.overload] = _either(rule.function, table.get(rule.overload), rule.of_real)
    return result


@functools.cache
def _of_torch() -> Table:
    return torch_internals.decomposition_table(())


_COMPOSITES = {f"aten::{name}.default" for name in ("conv1d", "conv2d", "conv3d", "mH", "mT", "conj")}
"""Torch's own mappings of these for complex tensors do without a bias, or an operator that has a rule does as well."""


def _either(
    of_complex: Callable[..., Any], of_real: Callable[..., Any] | None, always: bool = False
) -> Callable[..., Any]:
    def chosen(*args: Any, **kwargs: Any) -> Any:
        if always or is_complex_call(args, kwargs):
            return of_complex(*args, **kwargs)
        # For torch this means that there is no decomposition.
        return NotImplemented if of_real is None else of_real(*args, **kwargs)

    return chosen


def _first(own: Callable[..., Any], of_torch: Callable[..., Any]) -> Callable[..., Any]:
    """A mapping of the catalog, or torch's if the catalog's does not support complex tensors."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        result = own(*args, **kwargs)
        if result is NotImplemented and is_complex_call(args, kwargs):
            return of_torch(*args, **kwargs)
        return result

    return chosen
