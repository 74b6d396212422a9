"""The ladder's loop: propose a model, attach bodies, build kernels, adapt and probe, as long as a refusal can be fixed.

Captured programs and ONNX models go through the same loop. The protocol ``Proposer`` hides the differences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from opbridge.capture.capture import Captured
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.kernel_choice import ALWAYS
from opbridge.catalog.declare.nan import EXACT, keeping_nan
from opbridge.engines.base import Engine
from opbridge.engines.probe import probe
from opbridge.engines.roles import TakesTorchPrograms
from opbridge.engines.versions import Versions, forget_origins
from opbridge.kernels.declared import KernelSpec
from opbridge.ladder.adapt import Fitted, fit
from opbridge.ladder.build import Built, build
from opbridge.ladder.climb_torch import climb_torch
from opbridge.ladder.climbed import Break, Climbed, ClimbedAll
from opbridge.ladder.elementwise_chains import compile_chains
from opbridge.ladder.foreign_bodies import attach_bodies
from opbridge.ladder.kernel_rung import build_kernels, buildable, kernels_in, uses_kernels_of_catalog
from opbridge.ladder.model_proposer import ModelProposer
from opbridge.ladder.program_proposer import ProgramProposer
from opbridge.ladder.proposer import Attempt, Proposer
from opbridge.onnx_model.validity import check_change

__all__ = ["Break", "Climbed", "ClimbedAll", "climb", "climb_all"]

_AS_IT_IS = Versions()


def climb_all(
    model: Captured | ir.Model,
    catalog: Catalog,
    engines: Sequence[Engine],
    requested: Versions = _AS_IT_IS,
    *,
    dry: bool = False,
    report: Callable[[str], None] = lambda stage: None,
) -> ClimbedAll:
    """Bring a model to several engines: once to all that load ONNX, and once to each of the others.

    The parameters and the errors are those of :func:`climb`.
    """
    programs = {
        engine.name: climb_torch(model, catalog, engine, dry=dry, report=report)
        for engine in engines
        if isinstance(engine, TakesTorchPrograms) and isinstance(model, Captured)
    }
    loading_onnx = [engine for engine in engines if engine.name not in programs]
    onnx = climb(model, catalog, loading_onnx, requested, dry=dry, report=report) if loading_onnx else None
    return ClimbedAll(onnx, programs)


def climb(
    model: Captured | ir.Model,
    catalog: Catalog,
    engines: Sequence[Engine],
    requested: Versions = _AS_IT_IS,
    *,
    dry: bool = False,
    report: Callable[[str], None] = lambda stage: None,
) -> Climbed:
    """Bring a model to the engines that load ONNX, rung by rung.

    Args:
        model: A captured program, or an ONNX model. It is not changed.
        catalog: The mappings and the declared bodies.
        engines: The engines; each is queried about every node.
        requested: The opset and the IR version that the user requests.
        dry: Whether to continue after operators for which no rung is left, and to build no kernels. Each distinct
            operator of a captured program is then tried alone, and a placeholder replaces an unsupported one.
        report: A callback that receives the name of each stage as it begins.

    Raises:
        UnsupportedOperatorError: No rung is left for some operators (not in a dry run); all are named.
        TranslationError: A mapping fails and there is no other.
        BuildError: A kernel does not compile; or there is no compiler, and a node has no function body (not in a dry
            run) or the user always wants kernels.
    """
    proposer = _proposer(model, catalog, engines, requested, dry)
    while True:
        proposed = proposer.propose(report)
        bodied = tuple(attach_bodies(proposed, catalog))
        kernels, no_compiler = buildable(kernels_in(proposed, catalog), proposed, engines, dry=dry)
        built = {} if dry else build_kernels(kernels, engines, report)
        report("probing")
        targets = [kernel.target for kernel in kernels]
        with keeping_nan(catalog.nan == EXACT):
            fitted = {
                engine.name: _best_fit(proposer, proposed, engine, requested, built.get(engine.name), targets)
                for engine in engines
            }
        taken = tuple(targets) if any(engine.takes_kernels for engine in engines) else ()
        attempt = Attempt(proposed, bodied, taken, fitted)
        if not proposer.learn(attempt):
            break
    steps = proposer.steps(attempt)
    if not dry and catalog.kernels == ALWAYS:
        fitted, built = _with_chains(fitted, built, kernels, engines)
    models = {name: item.model for name, item in fitted.items()}
    for item in (proposed, *models.values()):
        forget_origins(item)
    opsets = {name: item.opset_imports.get("", 0) for name, item in models.items()}
    highest = max(opsets, key=lambda name: opsets[name])
    return Climbed(
        given=proposed,
        models=models,
        adaptations={name: (*proposer.adaptations, *item.adaptations) for name, item in fitted.items()},
        breaks=proposer.breaks(),
        steps=steps,
        opset=opsets[highest],
        opset_reason=proposer.opset_reason(opsets[highest], highest),
        built=_with_optional(built, models, engines),
        no_compiler=no_compiler,
        bodied=bodied,
        translated=proposer.translated,
    )


def _proposer(
    model: Captured | ir.Model, catalog: Catalog, engines: Sequence[Engine], requested: Versions, dry: bool
) -> Proposer:
    if isinstance(model, ir.Model):
        return ModelProposer(model, catalog, engines, requested, dry=dry)
    return ProgramProposer(
        model, catalog, engines, requested, dry=dry, kernels=uses_kernels_of_catalog(catalog, engines)
    )


def _best_fit(
    proposer: Proposer,
    model: ir.Model,
    engine: Engine,
    requested: Versions,
    built: Built | None,
    kernels: Sequence[str],
) -> Fitted:
    """The model in the opset in which the engine refuses the fewest nodes; in a tie, in its own opset."""
    operators = built.library.operators if built is not None else ()
    # An engine that loads no kernels runs the function bodies, and is queried about them.
    usable = kernels if engine.takes_kernels else ()
    best = fit(model, engine, requested, operators, usable, last_resort=proposer.last_resort)
    for opset in proposer.other_opsets(engine, best.refusals) if best.refusals else ():
        other = fit(model, engine, requested, operators, usable, opset=opset, last_resort=proposer.last_resort)
        if len(other.refusals) < len(best.refusals):
            best = other
        if not best.refusals:
            break
    return best


def _with_chains(
    fitted: Mapping[str, Fitted], built: Mapping[str, Built], kernels: Sequence[KernelSpec], engines: Sequence[Engine]
) -> tuple[dict[str, Fitted], dict[str, Built]]:
    """The models with kernels for chains of elementwise nodes, for engines that compute each node for itself."""
    fitted, built = dict(fitted), dict(built)
    for engine in engines:
        if engine.joins_elementwise or not engine.takes_kernels:
            continue
        before = fitted[engine.name]
        model = before.model.clone()
        chains, changes = compile_chains(model, [kernel.target for kernel in kernels])
        if chains:
            check_change("The kernels for elementwise nodes", model, before.model)
            fitted[engine.name] = dataclasses.replace(before, model=model, adaptations=(*before.adaptations, *changes))
            built[engine.name] = build([*kernels, *chains], engine)
    return fitted, built


def _with_optional(
    built: Mapping[str, Built], models: Mapping[str, ir.Model], engines: Sequence[Engine]
) -> dict[str, Built]:
    """The libraries; one is optional if the engine accepts the function bodies in place of the kernels."""
    by_name = {engine.name: engine for engine in engines}
    return {
        name: dataclasses.replace(library, optional=not probe(models[name], by_name[name]))
        for name, library in built.items()
    }
