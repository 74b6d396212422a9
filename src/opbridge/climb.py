"""Climbs the ladder: plan, translate, adapt and probe, again for what was refused, until nothing is left to mend."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch

from opbridge.adapt import Adaptation, adapt
from opbridge.build import Built, build
from opbridge.catalog import Catalog
from opbridge.custom_node import custom_node
from opbridge.engines.base import Engine, Refusal
from opbridge.engines.refusals import describe_operator
from opbridge.errors import TranslationError, UnsupportedOperatorError
from opbridge.graph.targets import calls_in, display_name, target_key
from opbridge.kernels.declared import KernelSpec, declared_kernels
from opbridge.plan import Plan, plan
from opbridge.probe import probe
from opbridge.steps import Step
from opbridge.translate import IR_VERSION, Translated, all_nodes, translate

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.capture import Captured

__all__ = ["Break", "Climbed", "climb"]


@dataclasses.dataclass(frozen=True)
class Break:
    """A broken link of one operator.

    Attributes:
        target: The torch operator, "aten::cummax.default"; for a node of no operator, "domain::Op".
        link: "mapping" (2) or "kernel" (3).
        reason: Why, in a line.
        sources: ``file:line`` in the user's model.
        engine: The engine that refuses it; empty for the mapping.
        node: The ONNX operator that it refuses, "ai.onnx::Conv".
        mended: Whether a further rung mended it.
    """

    target: str
    link: Literal["mapping", "kernel"]
    reason: str
    sources: tuple[str, ...] = ()
    engine: str = ""
    node: str = ""
    mended: bool = False


@dataclasses.dataclass(frozen=True)
class Climbed:
    """Where the ladder ended.

    Attributes:
        plan: The last plan.
        translated: The model before any engine's adaptation.
        models: The model of each engine, by its name.
        adaptations: What was changed for each engine.
        breaks: Every broken link met on the way, in order.
        built: The kernels of each engine that has some, by its name.
    """

    plan: Plan
    translated: Translated
    models: Mapping[str, ir.Model]
    adaptations: Mapping[str, tuple[Adaptation, ...]]
    breaks: tuple[Break, ...]
    built: Mapping[str, Built] = dataclasses.field(default_factory=dict)


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
        whole: See :func:`~opbridge.plan.plan`.
        ir_version: The version of the ONNX IR; by default the oldest that has function overloads.
        report: Told the stage that begins.

    Raises:
        UnsupportedOperatorError: No rung is left for some operators (not in a dry run); all are named.
        TranslationError: A mapping fails and there is no other.
    """
    newest = min(engine.newest_opset for engine in engines)
    state = _State(dry=captured is None, newest_opset=opset or newest)
    while True:
        report("planning")
        planned = plan(
            program,
            catalog,
            opset=opset,
            newest_opset=newest,
            raised=dict(state.raised),
            refused=frozenset(state.refused),
            rewrites=rewrites,
            whole=whole,
        )
        state.note_missing(planned)
        report("translating")
        try:
            translated = translate(state.with_placeholders(planned), captured, ir_version=ir_version or IR_VERSION)
        except TranslationError as error:
            state.note_failed_mapping(planned, error)
            continue
        kernels = _kernels_in(translated.model)
        built = _built(kernels, engines, report) if captured is not None else {}
        report("probing")
        models, adaptations = _adapted(translated.model, engines, built)
        names = [kernel.target for kernel in kernels]
        refusals = [(engine, refusal) for engine in engines for refusal in probe(models[engine.name], engine, names)]
        if not state.note_refusals(planned, translated, models, refusals):
            final = dataclasses.replace(planned, steps=_with_kernels(planned.steps, names))
            return Climbed(final, translated, models, adaptations, state.breaks(), built)


def _kernels_in(model: ir.Model) -> list[KernelSpec]:
    """The declared kernels of the model's nodes."""
    present = {f"{node.domain}::{node.op_type}" for node in all_nodes(model)}
    return [kernel for kernel in declared_kernels() if kernel.target in present]


def _built(kernels: Sequence[KernelSpec], engines: Sequence[Engine], report: Callable[[str], None]) -> dict[str, Built]:
    """One library per engine that takes kernels; models without kernels never ask for a compiler."""
    takers = [engine for engine in engines if engine.kernel_adapter is not None]
    if kernels and takers:
        report("building kernels")
    return {engine.name: build(kernels, engine) for engine in takers} if kernels else {}


def _with_kernels(steps: Sequence[Step], kernels: Sequence[str]) -> tuple[Step, ...]:
    """The steps, those of operators with a compiled kernel on the rung ``kernel``."""
    return tuple(
        dataclasses.replace(step, rung="kernel", detail="its function body is kept beside the kernel")
        if step.target in kernels and step.rung == "function"
        else step
        for step in steps
    )


def _adapted(
    model: ir.Model, engines: Sequence[Engine], built: Mapping[str, Built]
) -> tuple[dict[str, ir.Model], dict[str, tuple[Adaptation, ...]]]:
    models: dict[str, ir.Model] = {}
    adaptations: dict[str, tuple[Adaptation, ...]] = {}
    for position, engine in enumerate(engines):
        own = model if position == len(engines) - 1 else model.clone()
        operators = built[engine.name].library.operators if engine.name in built else ()
        models[engine.name], adaptations[engine.name] = adapt(own, engine, operators)
    return models, adaptations


class _State:
    """What has been refused so far, and why."""

    def __init__(self, dry: bool, newest_opset: int) -> None:
        self._newest_opset = newest_opset
        self.refused: set[str] = set()
        self.raised: dict[str, int] = {}
        self._dry = dry
        self._placeholders: set[str] = set()
        self._unmapped: set[str] = set()
        self._lost: set[str] = set()
        self._breaks: dict[tuple[str, str, str], Break] = {}

    def _note(self, found: Break) -> None:
        self._breaks.setdefault((found.target, found.link, found.engine), found)

    def note_missing(self, planned: Plan) -> None:
        """Record the operators that nothing maps; stop, unless dry, with all of them."""
        for item in planned.missing:
            earlier = [found for found in self._breaks.values() if found.target == item.target]
            if not earlier:
                self._note(Break(item.target, "mapping", item.reason, item.sources))
            self._placeholders.add(item.leaf)
            self._unmapped.add(item.target)
        if planned.missing and not self._dry:
            targets = {item.target for item in planned.missing}
            raise _unsupported([found for found in self._breaks.values() if found.target in targets])

    def note_failed_mapping(self, planned: Plan, error: TranslationError) -> None:
        """Record a mapping that raised, so that the next plan takes another; stop if it can't be told which."""
        mapping = planned.mapping_of(error.target) if error.target else None
        if error.target is None or mapping is None or (mapping in self.refused and not self._dry):
            raise error
        if mapping in self.refused:
            if error.target in self._placeholders:
                raise error
            self._placeholders.add(error.target)
            self._unmapped.add(error.target)
        self.refused.add(mapping)
        self._note(Break(error.target, "mapping", error.message, _sources(planned, error.target)))

    def note_refusals(
        self,
        planned: Plan,
        translated: Translated,
        models: Mapping[str, ir.Model],
        refusals: Sequence[tuple[Engine, Refusal]],
    ) -> bool:
        """Record what the engines refuse. True if a further rung may mend some of it."""
        again = False
        lost: list[Break] = []
        for engine, refusal in refusals:
            if refusal.operator.startswith(f"{_PLACEHOLDER}::"):
                continue
            node = _refused_node(models[engine.name], refusal)
            name = str(node.name) if node is not None else refusal.node
            key = translated.targets.get(name, "")
            places = (translated.sources[name],) if name in translated.sources else ()
            found = Break(key or refusal.operator, "kernel", refusal.reason, places, engine.name, refusal.operator)
            self._note(found)
            mapping = planned.mapping_of(key) if key else ""
            newer = self._newer_opset(engine, node, planned.opset, models[engine.name])
            if newer is not None:
                self.raised[key or refusal.operator] = newer
                again = True
            elif mapping and mapping not in self.refused:
                self.refused.add(mapping)
                again = True
            else:
                lost.append(found)
        if lost and not again and not self._dry:
            raise _unsupported(lost)
        self._lost = {found.target for found in lost}
        return again

    def _newer_opset(self, engine: Engine, node: ir.Node | None, opset: int, model: ir.Model) -> int | None:
        """The lowest newer opset at which the engine takes the node, if there is one."""
        if node is None or node.domain:
            return None
        versions = range(opset + 1, self._newest_opset + 1)
        return next((n for n in versions if engine.supports(node, {**model.opset_imports, "": n}) is None), None)

    def with_placeholders(self, planned: Plan) -> Plan:
        """The plan with a translation for each missing operator that stands for it in a dry run."""
        table = dict(planned.translations)
        for node in calls_in(planned.program):
            if str(target_key(node.target)) in self._placeholders:
                table[node.target] = _placeholder(node)
        return dataclasses.replace(planned, translations=table)

    def breaks(self) -> tuple[Break, ...]:
        """Every broken link met; mended is one whose operator found another rung."""
        left = self._unmapped | self._lost
        return tuple(dataclasses.replace(found, mended=found.target not in left) for found in self._breaks.values())


def _refused_node(model: ir.Model, refusal: Refusal) -> ir.Node | None:
    """The node that is to blame: where an engine refuses a call, that is one in the body."""
    node = next((node for node in all_nodes(model) if node.name == refusal.node), None)
    waiting = [node] if node is not None else []
    while waiting:
        found = waiting.pop(0)
        if describe_operator(found.domain, found.op_type) == refusal.operator:
            return found
        function = model.functions.get(found.op_identifier())
        waiting.extend(function.all_nodes() if function is not None else ())
    return node


_PLACEHOLDER = "opbridge.missing"


def _placeholder(node: torch.fx.Node) -> Callable[..., Any]:
    name = re.sub(r"\W", "_", str(target_key(node.target)).rpartition("::")[2])
    value = node.meta.get("val")
    outputs = max(1, len(value)) if isinstance(value, (tuple, list)) else 1

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        values = [value for value in args if hasattr(value, "producer")]
        return custom_node(f"{_PLACEHOLDER}::{name}", *values, num_outputs=outputs)

    return stand_in


def _sources(planned: Plan, key: str) -> tuple[str, ...]:
    name = key.removesuffix(".default")
    return next((step.sources for step in planned.steps if step.target in (key, name)), ())


def _unsupported(breaks: Sequence[Break]) -> UnsupportedOperatorError:
    lines = [
        f"  {found.target.removesuffix('.default')}: {found.reason}"
        + (f" [{found.engine}]" if found.engine else "")
        + (f" (at {', '.join(found.sources[:3])})" if found.sources else "")
        for found in breaks
    ]
    first = display_name(breaks[0].target)
    count = "1 operator has" if len(lines) == 1 else f"{len(lines)} operators have"
    return UnsupportedOperatorError(
        f"{count} no way to the engine:\n" + "\n".join(lines),
        fix=f"give each a mapping of your own: @opbridge.decomposition({first!r}) in torch operators, or "
        f"@opbridge.translation({first!r}) in ONNX operators; `opbridge diagnose` shows every link.",
        targets=[found.target for found in breaks],
    )
