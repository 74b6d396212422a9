"""torch's registry of symbolic functions: the only file that reads or changes it.

``tests/legacy/test_legacy_context.py`` checks the internals of ``torch.onnx._internal.torchscript_exporter`` used here:

* ``utils.register_custom_op_symbolic``, ``unregister_custom_op_symbolic``, ``_trigger_symbolic_function_registration``.
* ``registration.registry``: the ``_functions`` of its groups, whose ``_base`` holds torch's own symbolic functions and
  whose ``_overrides`` holds those that replace them.
* ``symbolic_opset7`` to ``20``: their functions were the registry of older versions, so old code assigned to them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["OPSETS", "names", "register", "registered", "symbolic_function", "unregister"]

OPSETS = range(7, 21)
"""The opsets for which torch has a module ``symbolic_opset<n>``."""


def register(name: str, function: Callable[..., Any], opset: int) -> None:
    """Register a symbolic function with torch, which checks the name.

    Raises:
        Exception: torch refuses the name.
    """
    from torch.onnx._internal.torchscript_exporter import utils

    utils.register_custom_op_symbolic(name, function, opset)


def unregister(name: str, opset: int) -> None:
    """Remove a registered symbolic function from torch's registry."""
    from torch.onnx._internal.torchscript_exporter import utils

    utils.unregister_custom_op_symbolic(name, opset)


def registered() -> dict[str, dict[int, Callable[..., Any]]]:
    """Return the symbolic functions that are not torch's own, by operator and opset."""
    from torch.onnx._internal.torchscript_exporter.registration import registry

    found: dict[str, dict[int, Callable[..., Any]]] = {}
    for name, opset, function in _assigned():
        found.setdefault(name, {})[opset] = function
    for name in sorted(registry.all_functions()):
        # torch's own exporter stores the symbolic of each autograd.Function that it exports under an empty namespace.
        if name.startswith("::"):
            continue
        functions: Any = getattr(registry.get_function_group(name), "_functions", None)
        foreign = {
            opset: function
            for opset, function in functions._base.items()
            if not str(getattr(function, "__module__", None)).startswith("torch.")
        }
        foreign.update(functions._overrides)
        if foreign:
            found.setdefault(name, {}).update(foreign)
    return found


def _assigned() -> Iterator[tuple[str, int, Callable[..., Any]]]:
    """Yield the functions that the user has assigned to ``torch.onnx.symbolic_opset<n>``, by operator and opset."""
    for opset in OPSETS:
        for package in ("torch.onnx._internal.torchscript_exporter", "torch.onnx"):
            module = sys.modules.get(f"{package}.symbolic_opset{opset}")
            for name, function in vars(module).items() if module is not None else ():
                if inspect.isfunction(function) and not str(function.__module__).startswith(("torch.", "opbridge.")):
                    yield f"aten::{name}", opset, function


def names() -> list[str]:
    """Return the operators that have a symbolic function, torch's own included."""
    from torch.onnx._internal.torchscript_exporter import utils
    from torch.onnx._internal.torchscript_exporter.registration import registry

    utils._trigger_symbolic_function_registration()
    return sorted(name for name in registry.all_functions() if not name.startswith("::"))


def symbolic_function(name: str, opset: int) -> Callable[..., Any] | None:
    """Return the newest symbolic function of an operator up to an opset, torch's own included; None if it has none."""
    from torch.onnx._internal.torchscript_exporter import utils
    from torch.onnx._internal.torchscript_exporter.registration import registry

    # torch registers its own symbolic functions when the modules that define them are imported.
    utils._trigger_symbolic_function_registration()
    group = registry.get_function_group(name)
    return group.get(opset) if group is not None else None
