"""Proposes translations of a captured program: one plan per attempt, without the mappings refused before."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.kernel_choice import AUTO
from opbridge.engines.base import Engine, Refusal
from opbridge.engines.versions import ORIGIN, Versions, ir_version_for
from opbridge.errors import TranslationError
from opbridge.ladder.climbed import Break
from opbridge.ladder.kernel_rung import kernels_on_few_elements
from opbridge.ladder.opset_reason import OpsetCause, OpsetReason
from opbridge.ladder.plan import Plan, plan
from opbridge.ladder.proposer import Attempt
from opbridge.ladder.step import Step
from opbridge.ladder.steps import Missing
from opbridge.ladder.translate import Translated, translate
from opbridge.ladder.unsupported import unsupported_operators
from opbridge.onnx_model.adaptation import Adaptation
from opbridge.onnx_model.names import describe_operator
from opbridge.onnx_model.scopes import all_nodes
from opbridge.torch_graph import LOWEST_OPSET
from opbridge.torch_graph.distinct import distinct_operators
from opbridge.torch_graph.targets import calls_in, target_key

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.capture.capture import Captured
    from opbridge.catalog.declare.catalog import Catalog
    from opbridge.catalog.declare.spec import OpSpec

__all__ = ["ProgramProposer"]


class ProgramProposer:
    """Plans and translates a captured program, and records what was refused and why.

    Args:
        captured: The captured program.
        catalog: The mappings to use.
        engines: The engines.
        requested: The opset and the IR version that the user requests.
        dry: Whether to try each distinct operator alone, with a placeholder for one that is not supported.
        kernels: Whether to use the mappings of the catalog to nodes with kernels.
    """

    adaptations: tuple[Adaptation, ...] = ()

    def __init__(
        self,
        captured: Captured,
        catalog: Catalog,
        engines: Sequence[Engine],
        requested: Versions,
        *,
        dry: bool,
        kernels: bool,
    ) -> None:
        self.last_resort = False
        self._captured = captured
        self._program = distinct_operators(captured.program) if dry else captured.program
        self._catalog = catalog
        self._engines = engines
        self._requested = requested
        self._dry = dry
        self._kernels = kernels
        # The mappings of torch.onnx begin at opset 18; the conversion to an older opset follows the translation.
        opset = requested.opset
        self._planned_opset = opset if opset is not None and opset >= LOWEST_OPSET else None
        self._newest_of_engines = max(LOWEST_OPSET, min(engine.newest_opset for engine in engines))
        self._newest_opset = opset or self._newest_of_engines
        self._served_opset = LOWEST_OPSET if requested.lowest else min(engine.served_opset for engine in engines)
        self._refused: set[str] = set()
        self._raised: dict[str, int] = {}
        self._placeholders: set[str] = set()
        self._unmapped: set[str] = set()
        self._lost: set[str] = set()
        self._breaks: dict[tuple[str, str, str], Break] = {}
        self._plan: Plan | None = None
        self._translated: Translated | None = None

    @property
    def plan(self) -> Plan:
        """The last plan."""
        assert self._plan is not None
        return self._plan

    @property
    def translated(self) -> Translated:
        """The last translation."""
        assert self._translated is not None
        return self._translated

    def propose(self, report: Callable[[str], None]) -> ir.Model:
        """The translation of the next plan; a plan whose translation fails is replaced by another.

        Raises:
            UnsupportedOperatorError: Some operators have no mapping (not in a dry run).
            TranslationError: A mapping fails and there is no other.
        """
        while True:
            report("planning")
            self._plan = self._next_plan()
            self._note_missing(self._plan)
            report("translating")
            try:
                self._translated = self._translate(self._plan)
            except TranslationError as error:
                self._note_failed_mapping(self._plan, error)
            else:
                return self._translated.model

    def _next_plan(self) -> Plan:
        planned = self._plan_without_refused()
        while self._catalog.kernels == AUTO and (few := kernels_on_few_elements(planned)):
            self._refused |= few
            planned = self._plan_without_refused()
        return planned

    def _plan_without_refused(self) -> Plan:
        return plan(
            self._program,
            self._catalog,
            opset=self._planned_opset,
            newest_opset=self._newest_of_engines,
            served_opset=self._served_opset,
            raised=dict(self._raised),
            refused=frozenset(self._refused),
            rewrites=self._captured.rewrites,
            whole=self._captured.program,
            kernels=self._kernels,
        )

    def _translate(self, planned: Plan) -> Translated:
        opset = max(planned.opset, LOWEST_OPSET)
        written = min(ir_version_for(engine, opset, self._requested) for engine in self._engines)
        return translate(
            self._with_placeholders(planned),
            None if self._dry else self._captured,
            ir_version=max(written, 8),
            requested_opset=self._requested.opset,
        )

    def other_opsets(self, engine: Engine, refusals: Sequence[Refusal]) -> tuple[int, ...]:
        """No opsets: the next plan raises the opset for all engines if that helps."""
        return ()

    def steps(self, attempt: Attempt) -> tuple[Step, ...]:
        """The rung of each operator of the captured program."""
        return tuple(
            dataclasses.replace(step, rung="kernel", detail="its function body is kept too")
            if step.target in attempt.kernels and step.rung == "function"
            else step
            for step in self.plan.steps
        )

    def opset_reason(self, opset: int, engine: str) -> OpsetReason:
        """Why the engines' models have this opset: the plan's reason, unless they were converted to an older one."""
        if opset >= self.plan.opset:
            return self.plan.opset_reason
        requested = self._requested.opset is not None
        return OpsetReason(OpsetCause.REQUESTED) if requested else OpsetReason(OpsetCause.ENGINE, engine)

    def _note(self, found: Break) -> None:
        self._breaks.setdefault((found.target, found.link, found.engine), found)

    def _note_missing(self, planned: Plan) -> None:
        """Record the operators without a mapping; unless dry, raise an error that names all of them."""
        for item in planned.missing:
            if not any(found.target == item.target for found in self._breaks.values()):
                part = self._refused_part(item)
                self._note(
                    Break(item.target, "mapping", item.reason, item.sources)
                    if part is None
                    else dataclasses.replace(part, target=item.target, sources=item.sources)
                )
            self._placeholders.add(item.leaf)
            self._unmapped.add(item.target)
        if planned.missing and not self._dry:
            targets = {item.target for item in planned.missing}
            raise unsupported_operators([found for found in self._breaks.values() if found.target in targets])

    def _refused_part(self, item: Missing) -> Break | None:
        """What an engine refused of an operator that has a mapping; the prim that is left names the part."""
        name = _bare_name(item.leaf)
        refused = [found for found in self._breaks.values() if found.link == "kernel"]
        return next((found for found in refused if _bare_name(found.target) == name), None)

    def _note_failed_mapping(self, planned: Plan, error: TranslationError) -> None:
        """Record a failed mapping, so that the next plan uses another; raise the error if it can't be identified."""
        mapping = planned.mapping_of(error.target) if error.target else None
        final = mapping in self._refused or self._users(planned, error.target) is not None
        if error.target is None or mapping is None or (final and not self._dry):
            raise error
        if mapping in self._refused:
            if error.target in self._placeholders:
                raise error
            self._placeholders.add(error.target)
            self._unmapped.add(error.target)
        self._refused.add(mapping)
        self._note(Break(error.target, "mapping", error.message, _sources(planned, error.target)))

    def learn(self, attempt: Attempt) -> bool:
        """Record the engines' refusals; True if another rung may fix some of them."""
        planned, translated = self.plan, self.translated
        models = {name: item.model for name, item in attempt.fitted.items()}
        refusals = [(engine, refusal) for engine in self._engines for refusal in attempt.fitted[engine.name].refusals]
        again = False
        lost: list[Break] = []
        for engine, refusal in refusals:
            if refusal.operator.startswith(f"{_PLACEHOLDER}::"):
                continue
            node = _refused_node(models[engine.name], refusal)
            name = _original_name(node, refusal)
            key = translated.targets.get(name, "")
            places = (translated.sources[name],) if name in translated.sources else ()
            found = Break(
                key or refusal.operator,
                "kernel",
                refusal.reason,
                places,
                engine.name,
                refusal.operator,
                opset=refusal.opset,
            )
            self._note(found)
            mapping = planned.mapping_of(key) if key else ""
            users = self._users(planned, key)
            newer = self._newer_opset(engine, node, planned.opset, models[engine.name])
            if newer is not None:
                self._raised[key or refusal.operator] = newer
                again = True
            elif mapping and mapping not in self._refused and (users is None or self._has_body(users, refusal)):
                self._refused.add(mapping)
                again = True
            else:
                place = f", of the mapping at {users.source}" if users is not None and users.source else ""
                lost.append(dataclasses.replace(found, reason=found.reason + place))
        if lost and not again and not self.last_resort:
            self.last_resort = again = True
        if lost and not again and not self._dry:
            raise unsupported_operators(lost)
        self._lost = {found.target for found in lost}
        return again

    def _users(self, planned: Plan, key: str | None) -> OpSpec | None:
        """The mapping of a target key if it is the user's: one of the catalog or of torch.onnx never replaces it."""
        spec = planned.chosen.get(key or "")
        return spec if spec is not None and self._catalog.provider(spec) == "user" else None

    def _has_body(self, spec: OpSpec, refusal: Refusal) -> bool:
        """Whether the user's own body may replace a translation; never one whose custom node an engine refuses."""
        own = any(other.rung == "function" and other.target == spec.target for other in self._catalog.user)
        return own and spec.rung == "translate" and refusal.operator.startswith("ai.onnx::")

    def _newer_opset(self, engine: Engine, node: ir.Node | None, opset: int, model: ir.Model) -> int | None:
        """The lowest newer opset that the model may have and at which the engine accepts the node; None without one."""
        if node is None or node.domain or model.opset_imports[""] < opset:
            return None
        versions = range(opset + 1, self._newest_opset + 1)
        return next((n for n in versions if engine.supports(node, {**model.opset_imports, "": n}) is None), None)

    def _with_placeholders(self, planned: Plan) -> Plan:
        """The plan with a placeholder translation for each missing operator, for a dry run."""
        table = dict(planned.translations)
        for node in calls_in(planned.program):
            if str(target_key(node.target)) in self._placeholders:
                table[node.target] = _placeholder(node)
        return dataclasses.replace(planned, translations=table)

    def breaks(self) -> tuple[Break, ...]:
        """Every broken link; ``mended`` is true if another rung supports the operator."""
        left = self._unmapped | self._lost
        return tuple(dataclasses.replace(found, mended=found.target not in left) for found in self._breaks.values())


def _refused_node(model: ir.Model, refusal: Refusal) -> ir.Node | None:
    """The node that causes the refusal; if an engine refuses a call, this is a node in the body."""
    node = next((node for node in all_nodes(model) if node.name == refusal.node), None)
    waiting = [node] if node is not None else []
    while waiting:
        found = waiting.pop(0)
        if describe_operator(found.domain, found.op_type) == refusal.operator:
            return found
        function = model.functions.get(found.op_identifier())
        waiting.extend(function.all_nodes() if function is not None else ())
    return node


def _original_name(node: ir.Node | None, refusal: Refusal) -> str:
    """The name in the translated model of the refused node, or of the node that it was made from."""
    return refusal.node if node is None else node.metadata_props.get(ORIGIN, str(node.name))


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


def _bare_name(key: str) -> str:
    """The name of an operator alone: add, for aten::add.Tensor and prims::add.default."""
    return key.partition("::")[2].partition(".")[0]
