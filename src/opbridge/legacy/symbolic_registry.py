"""A replacement for the removed module ``torch.onnx.symbolic_registry``, which is importable while the bridge is on."""

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
        opname: The name of the operator without its namespace, such as ``"asinh"``.
        op: The symbolic function, called as ``op(g, *values)``.
        domain: The namespace of the operator; empty means aten.
        version: The lowest opset to which the function applies.
    """
    register_custom_op_symbolic(_name(opname, domain), op, version)


def get_registered_op(opname: str, domain: str, version: int) -> Callable[..., Any]:
    """Return the symbolic function of an operator at an opset, including those of torch.

    Raises:
        InputError: The operator has no symbolic function at this opset.
    """
    found = torch_registry.symbolic_function(_name(opname, domain), version)
    if found is None:
        raise InputError(
            f"No symbolic function is registered for {_name(opname, domain)} at opset {version}.",
            fix=f"register one: register_op({opname!r}, function, {domain!r}, {version}).",
        )
    return found


def is_registered_op(opname: str, domain: str, version: int) -> bool:
    """Return whether an operator has a symbolic function at an opset."""
    return torch_registry.symbolic_function(_name(opname, domain), version) is not None


def get_op_supported_version(opname: str, domain: str, version: int) -> int | None:
    """Return the lowest opset up to ``version`` at which an operator has a symbolic function; None if it has none."""
    return next((n for n in _OPSETS if n <= version and is_registered_op(opname, domain, n)), None)


def register_version(domain: str, version: int) -> None:
    """Do nothing: old code had to call this function before it used an opset, and now every opset is registered."""


def get_ops_in_version(version: int) -> list[tuple[str, Callable[..., Any]]]:
    """Return the names and functions of ``torch.onnx.symbolic_opset<version>``."""
    module: ModuleType | None = torch_internals.old_exporter(f"symbolic_opset{version}")
    return inspect.getmembers(module, inspect.isfunction) if module is not None else []


def is_registered_version(domain: str, version: int) -> bool:
    """Return whether a namespace has symbolic functions at an opset."""
    return (
        version in _OPSETS
        if not domain
        else any(
            name.startswith(f"{domain}::") and version >= min(functions)
            for name, functions in torch_registry.registered().items()
        )
    )
