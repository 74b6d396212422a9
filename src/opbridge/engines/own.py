"""The passes and operators in an engine's own folder: one file each, discovered by listing the folder."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from types import ModuleType

from opbridge.engines import family_of

__all__ = ["own_operators", "own_passes"]


@functools.cache
def own_operators(engine: str) -> dict[str, ModuleType]:
    """The modules of ``engines/<engine>/operators/``, by the operator that each implements.

    Each defines ``OPERATOR``, such as ``"ai.onnx::DeformConv"``; what else it defines is up to the engine.
    """
    return {module.OPERATOR: module for module in _modules(engine, "operators")}


def own_passes(engine: str) -> tuple[ModuleType, ...]:
    """The modules of ``engines/<engine>/passes/``, which have the form of those in ``engines/passes/``."""
    return _modules(engine, "passes")


@functools.cache
def _modules(engine: str, folder: str) -> tuple[ModuleType, ...]:
    package = f"{__package__}.{family_of(engine)}"
    # Internal engines have names that are not module names.
    try:
        if importlib.util.find_spec(f"{package}.{folder}") is None:
            return ()
    except ModuleNotFoundError:
        return ()
    place = importlib.import_module(f"{package}.{folder}").__path__
    names = sorted(info.name for info in pkgutil.iter_modules(place) if not info.name.startswith("_"))
    return tuple(importlib.import_module(f"{package}.{folder}.{name}") for name in names)
