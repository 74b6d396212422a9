"""What an engine's folder has besides the engine: its own passes and operators, a file each, found by looking."""

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
    """The files of ``engines/<engine>/operators/``, by the operator that each says it is for.

    Each defines ``OPERATOR``, ``"ai.onnx::DeformConv"`` for one; what else, the engine says.
    """
    return {module.OPERATOR: module for module in _modules(engine, "operators")}


def own_passes(engine: str) -> tuple[ModuleType, ...]:
    """The files of ``engines/<engine>/passes/``: they are like those of ``opbridge/passes/``."""
    return _modules(engine, "passes")


@functools.cache
def _modules(engine: str, folder: str) -> tuple[ModuleType, ...]:
    package = f"{__package__}.{family_of(engine)}"
    # The engines that are for this package's own use have names that are no modules'.
    try:
        if importlib.util.find_spec(f"{package}.{folder}") is None:
            return ()
    except ModuleNotFoundError:
        return ()
    place = importlib.import_module(f"{package}.{folder}").__path__
    names = sorted(info.name for info in pkgutil.iter_modules(place) if not info.name.startswith("_"))
    return tuple(importlib.import_module(f"{package}.{folder}.{name}") for name in names)
