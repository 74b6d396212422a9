"""Stage 4: change a model where an engine needs it, and say what was changed."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import opbridge.passes
from opbridge.engines.base import Engine
from opbridge.passes.adaptation import Adaptation

if TYPE_CHECKING:
    from onnx_ir import Model

    from opbridge.kernels.library import KernelOperator

__all__ = ["Adaptation", "adapt", "adapting_passes"]


@functools.cache
def adapting_passes() -> tuple[ModuleType, ...]:
    """The files of ``passes/`` that adapt a model to an engine, in their ``ORDER``: found by looking.

    Each defines ``for_engine(model, engine, kernels) -> Pass | None``; None where there is nothing to do.
    """
    names = sorted(info.name for info in pkgutil.iter_modules(opbridge.passes.__path__))
    modules = [importlib.import_module(f"opbridge.passes.{name}") for name in names]
    return tuple(sorted((m for m in modules if hasattr(m, "for_engine")), key=lambda module: module.ORDER))


def adapt(model: Model, engine: Engine, kernels: Sequence[KernelOperator] = ()) -> tuple[Model, tuple[Adaptation, ...]]:
    """The model as the engine needs it, and what was changed for that.

    Args:
        model: The model, which is not changed; its tensors are shared with the result.
        engine: The engine, which is asked what it lacks.
        kernels: The kernels that are loaded beside it.

    Returns:
        ``model`` itself and no adaptations where the engine takes it as it is, or where nothing here helps.
    """
    adapted: Model = model
    adaptations: tuple[Adaptation, ...] = ()
    for module in adapting_passes():
        transform = module.for_engine(adapted, engine, kernels)
        if transform is not None:
            result = transform(adapted.clone())
            if result.modified:
                adapted, adaptations = result.model, (*adaptations, *result.adaptations)
    return adapted, adaptations
