"""What the rounds of the ladder remember: what was refused so far, why, and what is tried instead."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.engines.base import Engine, Refusal
from opbridge.engines.versions import ORIGIN
from opbridge.errors import TranslationError, UnsupportedOperatorError
from opbridge.ladder.climbed import Break
from opbridge.ladder.plan import Plan
from opbridge.ladder.translate import Translated
from opbridge.onnx_model.names import describe_operator
from opbridge.onnx_model.scopes import all_nodes
from opbridge.torch_graph.targets import calls_in, display_name, target_key

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["ClimbState", "unsupported"]


class ClimbState:
    """What has been refused so far, and why.

    Args:
        dry: An operator that can't be mended becomes a placeholder, and nothing stops.
        newest_opset: The newest to which an operator may raise the model.
    """

    def __init__(self, *, dry: bool, newest_opset: int) -> None:
        self._newest_opset = newest_opset
        self.refused: set[str] = set()
        self.raised: dict[str, int] = {}
        self.last_resort = False
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
            raise unsupported([found for found in self._breaks.values() if found.target in targets])

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
            newer = self._newer_opset(engine, node, planned.opset, models[engine.name])
            if newer is not None:
                self.raised[key or refusal.operator] = newer
                again = True
            elif mapping and mapping not in self.refused:
                self.refused.add(mapping)
                again = True
            else:
                lost.append(found)
        if lost and not again and not self.last_resort:
            self.last_resort = again = True
        if lost and not again and not self._dry:
            raise unsupported(lost)
        self._lost = {found.target for found in lost}
        return again

    def _newer_opset(self, engine: Engine, node: ir.Node | None, opset: int, model: ir.Model) -> int | None:
        """The lowest newer opset at which the engine takes the node, if there is one and the model may have it."""
        if node is None or node.domain or model.opset_imports[""] < opset:
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


def _original_name(node: ir.Node | None, refusal: Refusal) -> str:
    """The name that the refused node, or what it was made of, has in the translated model."""
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


def unsupported(breaks: Sequence[Break]) -> UnsupportedOperatorError:
    """The error that names all operators that no rung is left for."""
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
