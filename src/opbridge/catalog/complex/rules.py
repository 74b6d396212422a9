"""Finds the rules for complex tensors, and puts them into the table by which torch decomposes a program.

ONNX has no kernels for complex tensors. A rule computes with the real and the imaginary parts, in torch operators that
are decomposed and mapped in turn; it takes effect only where a tensor or number of the call is complex. The catalog's
and torch's own mappings of the operator serve all other calls.
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
    """What one operator computes of complex tensors, in terms of real ones.

    Attributes:
        overload: The torch operator.
        function: Takes the operator's own arguments.
        of_real: The operator makes complex tensors of real ones, so the rule is asked at every call.
    """

    overload: torch._ops.OpOverload
    function: Callable[..., Any]
    of_real: bool = False


def complex_rule(*targets: str, takes_overload: bool = False, of_real: bool = False) -> Callable[[F], F]:
    """Declare a function as the rule of these operators for complex tensors.

    Args:
        targets: ``"aten::mul.Tensor"``; an operator that this version of torch lacks has no rule.
        takes_overload: The function serves several operators, and gets the one that is called as its first argument.
        of_real: The operator makes complex tensors of real ones, so the rule is asked at every call. Any rule may
            return ``NotImplemented`` for a call that it leaves as it is.
    """

    def decorate(function: F) -> F:
        setattr(function, _ATTRIBUTE, (targets, takes_overload, of_real))
        return function

    return decorate


@functools.cache
def rules() -> Mapping[str, Rule]:
    """Every rule of the files in this folder, by the operator's target key."""
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
    """A table of decompositions with the rules for complex tensors in it.

    Args:
        table: By operator; it is not changed.
        kept: Target keys of the operators that are not decomposed where they are real. Of complex tensors they are, if
            torch can and has no mapping for those.
        replaced: Target keys of the operators to leave alone: the user has a mapping of his own.
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
        # Torch takes this as: there is no decomposition.
        return NotImplemented if of_real is None else of_real(*args, **kwargs)

    return chosen


def _first(own: Callable[..., Any], of_torch: Callable[..., Any]) -> Callable[..., Any]:
    """A mapping of the catalog, and torch's where that one is not for complex tensors."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        result = own(*args, **kwargs)
        if result is NotImplemented and is_complex_call(args, kwargs):
            return of_torch(*args, **kwargs)
        return result

    return chosen
