"""Stage 4: ``adapt`` a model to an engine, and list the changes."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import opbridge.engines.passes
from opbridge.engines.base import Engine, Refusal
from opbridge.engines.own import own_passes
from opbridge.engines.probe import probe
from opbridge.engines.versions import Versions, bring_to_versions
from opbridge.onnx_model.adaptation import Adaptation
from opbridge.onnx_model.validity import check_change

if TYPE_CHECKING:
    from onnx_ir import Model

    from opbridge.kernels.library import KernelOperator

__all__ = ["Adaptation", "Fitted", "adapt", "adapting_passes", "fit"]


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A model adapted to an engine, with the refusals that remain.

    Attributes:
        model: The engine's model.
        adaptations: The changes.
        refusals: The nodes that the engine still refuses or that its opset can't express.
    """

    model: Model
    adaptations: tuple[Adaptation, ...]
    refusals: tuple[Refusal, ...]


def fit(
    model: Model,
    engine: Engine,
    requested: Versions,
    operators: Sequence[KernelOperator] = (),
    kernels: Collection[str] = (),
    *,
    opset: int | None = None,
    last_resort: bool = True,
) -> Fitted:
    """Convert a model to an opset and IR version of the engine, adapt it, and query the engine about every node.

    Args:
        model: The model, which is not changed except for notes in its metadata.
        engine: The engine.
        requested: The opset and the IR version that the user requests.
        operators: The kernels that are loaded with the model.
        kernels: ``"domain::Op"`` of the nodes for which there are kernels, loaded or not.
        opset: The opset to try if the user requests none; by default the model's own.
        last_resort: Whether to use passes that are worse than another mapping or another opset.
    """
    begun = bring_to_versions(model, engine, requested, opset=opset, kernels=kernels if operators else ())
    if begun.refusals:
        return Fitted(begun.model, begun.adaptations, begun.refusals)
    if begun.model is not model:
        check_change("The conversion to another opset or IR version", begun.model, model)
    adapted, changed = adapt(begun.model, engine, operators, last_resort=last_resort)
    return Fitted(adapted, (*begun.adaptations, *changed), probe(adapted, engine, kernels))


@functools.cache
def adapting_passes(engine: str = "") -> tuple[ModuleType, ...]:
    """The modules in ``passes/``, and in the engine's own folder of that name, in their ``ORDER``.

    Each defines ``for_engine(model, engine, kernels) -> Pass | None``; None if there is nothing to do. A module with
    ``LAST_RESORT`` is for nodes that no mapping and no other opset fixes.
    """
    names = sorted(info.name for info in pkgutil.iter_modules(opbridge.engines.passes.__path__))
    modules = [importlib.import_module(f"opbridge.engines.passes.{name}") for name in names]
    modules += own_passes(engine) if engine else ()
    return tuple(sorted((m for m in modules if hasattr(m, "for_engine")), key=lambda module: module.ORDER))


def adapt(
    model: Model, engine: Engine, kernels: Sequence[KernelOperator] = (), *, last_resort: bool = True
) -> tuple[Model, tuple[Adaptation, ...]]:
    """The model adapted to the engine, and the changes.

    Args:
        model: The model, which is not changed; its tensors are shared with the result.
        engine: The engine, which is queried about each node.
        kernels: The kernels that are loaded with the model.
        last_resort: Whether to use passes that are worse than another mapping or another opset.

    Returns:
        ``model`` itself and no adaptations if the engine accepts it unchanged, or if no pass helps.

    Raises:
        TranslationError: A pass made the model invalid, or changed its inputs or outputs.
    """
    adapted: Model = model
    adaptations: tuple[Adaptation, ...] = ()
    for module in adapting_passes(engine.name):
        if getattr(module, "LAST_RESORT", False) and not last_resort:
            continue
        transform = module.for_engine(adapted, engine, kernels)
        if transform is not None:
            result = transform(adapted.clone())
            if result.modified:
                check_change(type(transform).__name__, result.model, adapted)
                adapted, adaptations = result.model, (*adaptations, *result.adaptations)
    return adapted, adaptations
