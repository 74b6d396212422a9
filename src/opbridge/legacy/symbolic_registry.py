"""A replacement for the removed module ``torch.onnx.symbolic_registry``, which is importable while the bridge is on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import ModuleType
from typing import Any

from opbridge.errors import InputError
from opbridge.legacy import torch_registry
from opbridge.legacy.registrations import register_custom_op_symbolic, unregister_custom_op_symbolic
from opbridge.torch_graph import internals as torch_internals

__all__ = [
    "get_op_supported_version",
    "get_ops_in_version",
    "get_registered_op",
    "is_registered_op",
    "is_registered_version",
    "register_op",
    "register_ops_in_version",
    "register_version",
    "unregister_op",
]


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
    return next((n for n in torch_registry.OPSETS if n <= version and is_registered_op(opname, domain, n)), None)


def unregister_op(opname: str, domain: str, version: int) -> None:
    """Remove the symbolic function that was registered for an operator from this opset on."""
    unregister_custom_op_symbolic(_name(opname, domain), version)


def register_ops_in_version(domain: str, version: int) -> None:
    """Do nothing, as :func:`register_version`."""


class _Operators(MutableMapping[str, Callable[..., Any]]):
    """The symbolic functions of a namespace at an opset, by the names of the operators."""

    def __init__(self, domain: str, version: int) -> None:
        self._domain = domain
        self._version = version

    def __getitem__(self, opname: str) -> Callable[..., Any]:
        found = torch_registry.symbolic_function(_name(opname, self._domain), self._version)
        if found is None:
            raise KeyError(opname)
        return found

    def __setitem__(self, opname: str, op: Callable[..., Any]) -> None:
        register_op(opname, op, self._domain, self._version)

    def __delitem__(self, opname: str) -> None:
        unregister_op(opname, self._domain, self._version)

    def __iter__(self) -> Iterator[str]:
        prefix = _name("", self._domain)
        for name in torch_registry.names():
            if name.startswith(prefix) and torch_registry.symbolic_function(name, self._version) is not None:
                yield name.removeprefix(prefix)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Registry(Mapping[tuple[str, int], _Operators]):
    """The former table of symbolic functions: ``_registry[domain, version][opname]``."""

    def __getitem__(self, key: tuple[str, int]) -> _Operators:
        return _Operators(*key)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Iterate over the opsets of aten: old code replaces a function in each of them."""
        return (("", version) for version in torch_registry.OPSETS)

    def __len__(self) -> int:
        return len(torch_registry.OPSETS)


_registry = _Registry()


class _Versions(MutableMapping[int, ModuleType]):
    """The former table of the modules with symbolic functions, by opset; a new one registers its functions for aten."""

    def __init__(self) -> None:
        found = {version: torch_internals.old_exporter(f"symbolic_opset{version}") for version in torch_registry.OPSETS}
        self._modules = {version: module for version, module in found.items() if module is not None}

    def __setitem__(self, version: int, module: ModuleType) -> None:
        self._modules[version] = module
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if not str(function.__module__).startswith(("torch.", "opbridge.")):
                register_op(name, function, "", version)

    def __getitem__(self, version: int) -> ModuleType:
        return self._modules[version]

    def __delitem__(self, version: int) -> None:
        del self._modules[version]

    def __iter__(self) -> Iterator[int]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def __getattr__(name: str) -> Any:
    """Make ``_symbolic_versions`` when it is first used, because this imports all of torch's symbolic functions."""
    if name != "_symbolic_versions":
        raise AttributeError(name)
    return globals().setdefault(name, _Versions())


def register_version(domain: str, version: int) -> None:
    """Do nothing: old code had to call this function before it used an opset, and now every opset is registered."""


def get_ops_in_version(version: int) -> list[tuple[str, Callable[..., Any]]]:
    """Return the names and functions of ``torch.onnx.symbolic_opset<version>``."""
    module: ModuleType | None = torch_internals.old_exporter(f"symbolic_opset{version}")
    return inspect.getmembers(module, inspect.isfunction) if module is not None else []


def is_registered_version(domain: str, version: int) -> bool:
    """Return whether a namespace has symbolic functions at an opset."""
    return (
        version in torch_registry.OPSETS
        if not domain
        else any(
            name.startswith(f"{domain}::") and version >= min(functions)
            for name, functions in torch_registry.registered().items()
        )
    )
