"""Stage 4: change a model where an engine needs it, and say what was changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opbridge.engines.base import Engine
from opbridge.passes.adaptation import Adaptation
from opbridge.passes.cast_around_missing_types import CastAroundMissingTypesPass
from opbridge.passes.inline_functions import InlineFunctionsPass
from opbridge.passes.serve_uncovered_by_body import ServeUncoveredByBodyPass
from opbridge.probe import probe

if TYPE_CHECKING:
    from onnx_ir import Model

    from opbridge.kernels.library import KernelOperator

__all__ = ["Adaptation", "adapt"]


def adapt(model: Model, engine: Engine, kernels: Sequence[KernelOperator] = ()) -> tuple[Model, tuple[Adaptation, ...]]:
    """The model as the engine needs it, and what was changed for that.

    Args:
        model: The model, which is not changed; its tensors are shared with the result.
        engine: The engine, which is asked what it lacks.
        kernels: The kernels that are loaded beside it.

    Returns:
        ``model`` itself and no adaptations where the engine takes it as it is, or where nothing here helps.
    """
    adapted, adaptations = model, ()
    if kernels:
        served = ServeUncoveredByBodyPass(kernels)(model.clone())
        if served.modified:
            adapted, adaptations = served.model, served.adaptations
    if model.functions and not engine.takes_functions:
        inlined = InlineFunctionsPass()(adapted.clone())
        adapted, adaptations = inlined.model, (*adaptations, *inlined.adaptations)
    if probe(adapted, engine, [kernel.target for kernel in kernels]):
        cast = CastAroundMissingTypesPass(engine)(adapted.clone())
        if cast.modified:
            adapted, adaptations = cast.model, (*adaptations, *cast.adaptations)
    return adapted, adaptations
