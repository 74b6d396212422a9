"""The findings, one file each; a new file in this folder is found by :func:`modules`."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from opbridge.findings.base import Failure, Finding

if TYPE_CHECKING:
    import torch

__all__ = ["Failure", "Finding", "by_code", "explain", "in_program", "modules"]


PACKAGES = [__name__]
"""The packages whose modules are findings; ``legacy`` adds its own."""


@functools.cache
def modules() -> tuple[ModuleType, ...]:
    """The modules of all findings, sorted by ``ORDER`` and then by name."""
    packages = [importlib.import_module(name) for name in PACKAGES]
    found = [
        importlib.import_module(f"{package.__name__}.{info.name}")
        for package in packages
        for info in pkgutil.iter_modules(package.__path__)
        if info.name != "base"
    ]
    return tuple(sorted(found, key=lambda module: (getattr(module, "ORDER", 0), module.__name__.rpartition(".")[2])))


def by_code(code: str) -> ModuleType:
    """The module of the finding with this code.

    Raises:
        KeyError: No finding has this code.
    """
    return {module.CODE: module for module in modules()}[code]


def explain(failure: Failure) -> Finding:
    """The first finding that recognizes a failed capture; the last one tried matches every failure."""
    for module in modules():
        finding = module.explain(failure) if hasattr(module, "explain") else None
        if finding is not None:
            return finding
    raise AssertionError("findings/capture_failed.py explains every failure")


def in_program(program: torch.export.ExportedProgram) -> Iterator[Finding]:
    """All findings about a captured program before its translation."""
    for module in modules():
        if hasattr(module, "detect"):
            yield from module.detect(program)
