"""``torch.onnx.symbolic_registry``, as old code imports it while the bridge is on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from opbridge.errors import InputError
from opbridge.legacy import torch_registry
from opbridge.legacy.registrations import register_custom_op_symbolic
from opbridge.torch_graph import internals as torch_internals

__all__ = [
    "get_op_supported_version",
    "get_ops_in_version",
    "get_registered_op",
    "is_registered_op",
    "is_registered_version",
    "register_op",
    "register_version",
]

_OPSETS = range(7, 21)


def _name(opname: str, domain: str) -> str:
    return f"{domain or 'aten'}::{opname}"


def register_op(opname: str, op: Callable[..., Any], domain: str, version: int) -> None:
    """Register a symbolic function.

    Args:
        opname: The operator's name, ``"asinh"``.
        op: ``op(g, *values)``.
        domain: Its namespace; empty means aten.
        version: The opset from which on it holds.
    """
    register_custom_op_symbolic(_name(opname, domain), op, version)


def get_registered_op(opname: str, domain: str, version: int) -> Callable[..., Any]:
    """The symbolic function in force for an operator at an opset, torch's own included.

    Raises:
        InputError: There is none.
    """
    found = torch_registry.symbolic_function(_name(opname, domain), version)
    if found is None:
        raise InputError(
            f"No symbolic function is registered for {_name(opname, domain)} at opset {version}.",
            fix=f"register one: register_op({opname!r}, function, {domain!r}, {version}).",
        )
    return found


def is_registered_op(opname: str, domain: str, version: int) -> bool:
    """Whether an operator has a symbolic function at an opset."""
    return torch_registry.symbolic_function(_name(opname, domain), version) is not None


def get_op_supported_version(opname: str, domain: str, version: int) -> int | None:
    """The lowest opset not above ``version`` at which an operator has a symbolic function; None if there is none."""
    return next((n for n in _OPSETS if n <= version and is_registered_op(opname, domain, n)), None)


def register_version(domain: str, version: int) -> None:
    """Had to be called before the first use of an opset; every opset is there from the start now."""


def get_ops_in_version(version: int) -> list[tuple[str, Callable[..., Any]]]:
    """The names and functions of ``torch.onnx.symbolic_opset<version>``."""
    module: ModuleType | None = torch_internals.old_exporter(f"symbolic_opset{version}")
    return inspect.getmembers(module, inspect.isfunction) if module is not None else []


def is_registered_version(domain: str, version: int) -> bool:
    """Whether symbolic functions of a namespace are known at an opset."""
    return (
        version in _OPSETS
        if not domain
        else any(
            name.startswith(f"{domain}::") and version >= min(functions)
            for name, functions in torch_registry.registered().items()
        )
    )
