"""Climbs the ladder: plan, translate, adapt and probe, again for what was refused, until nothing is left to mend."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines.base import Engine, Refusal
from opbridge.engines.versions import Versions, forget_origins, ir_version_for
from opbridge.errors import TranslationError
from opbridge.ladder.adapt import Adaptation, fit
from opbridge.ladder.build import Built
from opbridge.ladder.climb_state import ClimbState
from opbridge.ladder.climbed import Break, Climbed
from opbridge.ladder.foreign_bodies import attach_bodies
from opbridge.ladder.kernel_rung import build_kernels, buildable, kernels_in
from opbridge.ladder.plan import Plan, plan
from opbridge.ladder.step import Step
from opbridge.ladder.translate import translate
from opbridge.torch_graph import LOWEST_OPSET

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.capture.capture import Captured

__all__ = ["Break", "Climbed", "climb"]


def climb(
    program: torch.export.ExportedProgram,
    catalog: Catalog,
    engines: Sequence[Engine],
    *,
    captured: Captured | None,
    opset: int | None = None,
    rewrites: tuple[str, ...] = (),
    whole: torch.export.ExportedProgram | None = None,
    ir_version: int | None = None,
    report: Callable[[str], None] = lambda stage: None,
) -> Climbed:
    """Bring a captured program to the engines, rung by rung.

    Args:
        program: As captured, or its distinct operators for a dry run.
        catalog: The mappings in force.
        engines: Each is asked for every node.
        captured: Gives the model its names. None makes it a dry run: an operator that can't be mended becomes a
            placeholder, and nothing stops.
        opset: The opset the user asks for.
        rewrites: The rewrites taken while capturing.
        whole: See :func:`~opbridge.ladder.plan.plan`.
        ir_version: The version of the ONNX IR; by default the oldest that has function overloads.
        report: Told the stage that begins.

    Raises:
        UnsupportedOperatorError: No rung is left for some operators (not in a dry run); all are named.
        TranslationError: A mapping fails and there is no other.
        BuildError: A kernel does not compile; or there is no compiler, and no function body either (not in a dry run).
    """
    asked = Versions(opset, ir_version)
    # Torch's mappings begin at 18. A model of an older opset is planned like one without a wish, and taken down.
    planned_for = opset if opset is not None and opset >= LOWEST_OPSET else None
    newest = max(LOWEST_OPSET, min(engine.newest_opset for engine in engines))
    state = ClimbState(dry=captured is None, newest_opset=opset or newest)
    while True:
        report("planning")
        planned = plan(
            program,
            catalog,
            opset=planned_for,
            newest_opset=newest,
            raised=dict(state.raised),
            refused=frozenset(state.refused),
            rewrites=rewrites,
            whole=whole,
        )
        state.note_missing(planned)
        report("translating")
        written = min(ir_version_for(engine, max(planned.opset, LOWEST_OPSET), asked) for engine in engines)
        try:
            translated = translate(
                state.with_placeholders(planned), captured, ir_version=max(written, 8), asked_opset=opset
            )
        except TranslationError as error:
            state.note_failed_mapping(planned, error)
            continue
        # A translation, an old symbolic function for one, may have made nodes that the user has bodies for.
        attach_bodies(translated.model, catalog)
        kernels, no_compiler = buildable(kernels_in(translated.model), translated.model, engines, dry=captured is None)
        built = build_kernels(kernels, engines, report) if captured is not None else {}
        report("probing")
        names = [kernel.target for kernel in kernels]
        taken = any(engine.takes_kernels for engine in engines)
        models, adaptations, refusals = _adapted(translated.model, engines, built, asked, names, state.last_resort)
        if not state.note_refusals(planned, translated, models, refusals):
            final = dataclasses.replace(planned, steps=_with_kernels(planned.steps, names if taken else ()))
            for model in models.values():
                forget_origins(model)
            final = _at_opset(final, opset, models)
            return Climbed(final, translated, models, adaptations, state.breaks(), built, no_compiler)


def _at_opset(planned: Plan, opset: int | None, models: Mapping[str, ir.Model]) -> Plan:
    """The plan, with the opset of the models where they were taken below what was planned for."""
    written = {name: model.opset_imports[""] for name, model in models.items()}
    name = max(written, key=lambda key: written[key])
    if written[name] >= planned.opset:
        return planned
    reason = "asked for" if opset is not None else f"the newest that {name} takes"
    return dataclasses.replace(planned, opset=written[name], opset_reason=reason)


def _with_kernels(steps: Sequence[Step], kernels: Sequence[str]) -> tuple[Step, ...]:
    """The steps, those of operators with a compiled kernel on the rung ``kernel``."""
    return tuple(
        dataclasses.replace(step, rung="kernel", detail="its function body is kept beside the kernel")
        if step.target in kernels and step.rung == "function"
        else step
        for step in steps
    )


def _adapted(
    model: ir.Model,
    engines: Sequence[Engine],
    built: Mapping[str, Built],
    asked: Versions,
    kernels: Sequence[str],
    last_resort: bool,
) -> tuple[dict[str, ir.Model], dict[str, tuple[Adaptation, ...]], list[tuple[Engine, Refusal]]]:
    """The model of each engine, what was changed for it, and what it refuses all the same."""
    models: dict[str, ir.Model] = {}
    adaptations: dict[str, tuple[Adaptation, ...]] = {}
    refusals: list[tuple[Engine, Refusal]] = []
    for position, engine in enumerate(engines):
        own = model if position == len(engines) - 1 else model.clone()
        operators = built[engine.name].library.operators if engine.name in built else ()
        # An engine that takes no kernels runs the bodies, and is asked about these.
        beside = kernels if engine.takes_kernels else ()
        fitted = fit(own, engine, asked, operators, beside, last_resort=last_resort)
        models[engine.name], adaptations[engine.name] = fitted.model, fitted.adaptations
        refusals += [(engine, refusal) for refusal in fitted.refusals]
    return models, adaptations, refusals
