"""Define an out variant, through which ExecuTorch calls an operator, for each operator that has a kernel."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch

from opbridge.errors import EngineError

__all__ = ["define_out_variants", "kernel_name"]

# torch removes the operators of a library object that is deleted.
_libraries: list[torch.library.Library] = []


def kernel_name(target: str) -> str:
    """The name under which ExecuTorch's registry has the kernel of ``"domain::name"``."""
    return f"{target}.out"


def define_out_variants(targets: Iterable[str]) -> None:
    """Define a variant ``out`` of torch operators that have none.

    Args:
        targets: ``"domain::name"`` of each operator.

    Raises:
        EngineError: An operator returns something other than tensors.
    """
    for target in targets:
        domain, _, name = target.partition("::")
        # A kernel's file may declare other operators, which torch need not have since no program calls them.
        packet = getattr(getattr(torch.ops, domain), name, None)
        if packet is None or "out" in packet.overloads():
            continue
        functional = packet.default
        library = torch.library.Library(domain, "FRAGMENT")
        library.define(_out_schema(name, functional))
        library.impl(f"{name}.out", functools.partial(_write, functional), "CompositeExplicitAutograd")
        _libraries.append(library)


def _out_schema(name: str, functional: Any) -> str:
    schema = functional._schema
    if any(str(result.type) != "Tensor" for result in schema.returns):
        raise EngineError(
            f"executorch takes no kernels of operators like {functional.name()}, which returns {schema.returns}.",
            fix="return a tensor, or a fixed number of them.",
        )
    before, _, _ = str(schema).rpartition(" -> ")
    parameters = before[before.index("(") + 1 : -1]
    kinds = [f"Tensor({letter}!)" for letter in "abcdefghijklmnopqrstuvwxyz"[: len(schema.returns)]]
    names = ["out"] if len(kinds) == 1 else [f"out{number}" for number in range(len(kinds))]
    outputs = ", ".join(f"{kind} {out}" for kind, out in zip(kinds, names, strict=True))
    result = kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)})"
    return f"{name}.out({parameters}, *, {outputs}) -> {result}"


def _write(functional: Any, *args: Any, **kwargs: Any) -> Any:
    outputs = [kwargs.pop(name) for name in sorted(kwargs) if name.startswith("out") and name[3:].isdigit()]
    outputs = outputs or [kwargs.pop("out")]
    results = functional(*args, **kwargs)
    for output, result in zip(outputs, results if isinstance(results, tuple) else (results,), strict=True):
        output.resize_(result.shape).copy_(result)
    return tuple(outputs) if len(outputs) > 1 else outputs[0]
