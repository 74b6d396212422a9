"""Proposes an existing ONNX model, which enters the flow at ``adapt``.

A refused node is fixed by the first of these that helps: the declared body of a custom node, a kernel, casts and the
function bodies of the standard (``passes/``), another opset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import onnx
import onnx_ir as ir

from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines.base import Engine, Refusal
from opbridge.engines.probe import probe
from opbridge.engines.versions import ORIGIN, Versions, bring_to_versions, lowest_ir_version
from opbridge.ladder.adapt import Fitted
from opbridge.ladder.climbed import Break
from opbridge.ladder.opset_reason import OpsetCause, OpsetReason
from opbridge.ladder.proposer import Attempt
from opbridge.ladder.step import Rung, Step
from opbridge.ladder.unsupported import unsupported_nodes
from opbridge.onnx_model.adaptation import Adaptation
from opbridge.onnx_model.names import describe_node, describe_operator
from opbridge.onnx_model.opsets import NEWEST_OPSET, OLDEST_OPSET
from opbridge.onnx_model.scopes import all_nodes
from opbridge.vision.old_nodes import convert_old_nodes

__all__ = ["ModelProposer"]

_MOST_OPSETS = 6


class ModelProposer:
    """Proposes an ONNX model unchanged; each engine may use it in a different opset.

    Args:
        model: The model as it was read. It is not changed.
        catalog: The declared bodies.
        engines: The engines.
        requested: The opset and the IR version that the user requests.
        dry: Whether to continue after nodes for which no rung is left.
    """

    last_resort = True
    translated = None
    adaptations: tuple[Adaptation, ...] = ()

    def __init__(
        self, model: ir.Model, catalog: Catalog, engines: Sequence[Engine], requested: Versions, *, dry: bool
    ) -> None:
        self._model = model
        self._catalog = catalog
        self._engines = engines
        self._requested = requested
        self._dry = dry
        self._breaks: tuple[Break, ...] = ()
        self._converted_opset: int | None = None

    def propose(self, report: Callable[[str], None]) -> ir.Model:
        """The model, with a name for every node, and without nodes of older tools."""
        report("adapting")
        model, self.adaptations = convert_old_nodes(_named(self._model.clone()), self._catalog)
        if self.adaptations:
            self._converted_opset = model.opset_imports.get("")
        return model

    def other_opsets(self, engine: Engine, refusals: Sequence[Refusal]) -> list[int]:
        """The opsets at which a refused operator differs: newer opsets before older ones, each from near to far."""
        if self._requested.opset is not None:
            return []
        own = min(self._own_opset or NEWEST_OPSET, engine.newest_opset)
        newest = min(NEWEST_OPSET, engine.newest_opset)
        newer: set[int] = set()
        older: set[int] = set()
        for refusal in refusals:
            domain, _, op_type = refusal.operator.partition("::")
            for version in _versions_of(op_type) if domain == "ai.onnx" else ():
                (newer if version > own else older).add(version if version > own else version - 1)
        candidates = sorted(n for n in newer if n <= newest)
        candidates += sorted((n for n in older if OLDEST_OPSET <= n < own), reverse=True)
        if self._requested.ir_version is not None:
            candidates = [n for n in candidates if lowest_ir_version(n) <= self._requested.ir_version]
        return candidates[:_MOST_OPSETS]

    @property
    def _own_opset(self) -> int | None:
        imports = self._model.opset_imports
        return imports.get("", imports.get("ai.onnx"))

    def learn(self, attempt: Attempt) -> bool:
        """Record the engines' refusals; there is no other proposal."""
        self._breaks = tuple(
            found for engine in self._engines for found in _breaks(attempt, engine, attempt.fitted[engine.name])
        )
        lost = [found for found in self._breaks if not found.mended]
        if lost and not self._dry:
            raise unsupported_nodes(lost)
        return False

    def breaks(self) -> tuple[Break, ...]:
        """Every broken link, engine by engine."""
        return self._breaks

    def steps(self, attempt: Attempt) -> tuple[Step, ...]:
        """The rung of each operator of the model."""
        return tuple(_steps(attempt, self._breaks, self._catalog))

    def opset_reason(self, opset: int, engine: str) -> OpsetReason:
        """Why the engines' models have this opset."""
        if self._requested.opset is not None:
            return OpsetReason(OpsetCause.REQUESTED)
        if opset == self._own_opset:
            return OpsetReason(OpsetCause.MODEL)
        cause = OpsetCause.OLD_NODES if opset == self._converted_opset else OpsetCause.MODEL_REFUSED
        return OpsetReason(cause, opset=self._own_opset)


def _named(model: ir.Model) -> ir.Model:
    """Give every node a unique name and note it as its origin: breaks and adaptations refer to nodes by name."""
    # Some engines recognize a file with several domains as an ONNX model only if it names its producer.
    model.producer_name = model.producer_name or "opbridge"
    taken: set[str | None] = set()
    for node in model.graph.all_nodes():
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{len(taken)}"
            while node.name in taken:
                node.name += "_"
        taken.add(node.name)
        node.metadata_props[ORIGIN] = node.name
    for scope in (model, *model.functions.values()):
        if "ai.onnx" in scope.opset_imports:
            scope.opset_imports[""] = scope.opset_imports.pop("ai.onnx")
    for node in all_nodes(model):
        node.domain = "" if node.domain == "ai.onnx" else node.domain
    return model


def _breaks(attempt: Attempt, engine: Engine, best: Fitted) -> Iterator[Break]:
    """The nodes that the engine refuses in the unchanged model, and whether they are fixed in the engine's model."""
    kernels = attempt.kernels if engine.takes_kernels else ()
    begun = bring_to_versions(attempt.model, engine, Versions(), kernels=kernels)
    untouched = begun.refusals or _refused_as_it_is(begun.model, engine, attempt.bodied)
    operators = {node.name: describe_operator(node.domain, node.op_type) for node in attempt.model.graph.all_nodes()}
    made_of = {node.name: node.metadata_props.get(ORIGIN) for node in best.model.graph.all_nodes()}
    seen: dict[str, list[tuple[str, Refusal]]] = {}
    lost: dict[str, Refusal] = {}
    for refusal in untouched:
        seen.setdefault(operators.get(refusal.node, refusal.operator), []).append((refusal.node, refusal))
    for refusal in best.refusals:
        name = made_of.get(refusal.node) or refusal.node
        operator = operators.get(name, refusal.operator)
        seen.setdefault(operator, []).append((name, refusal))
        lost.setdefault(operator, refusal)
    for operator, found in seen.items():
        first = lost.get(operator, found[0][1])
        nodes = tuple(dict.fromkeys(name for name, _ in found))
        mended = operator not in lost
        yield Break(operator, "kernel", first.reason, nodes, engine.name, first.operator, mended, first.opset)


def _refused_as_it_is(model: ir.Model, engine: Engine, bodied: Sequence[str]) -> tuple[Refusal, ...]:
    """The engine's refusals for the unchanged model, without the declared bodies."""
    if not bodied:
        return probe(model, engine)
    bare = model.clone()
    for key in [key for key in bare.functions if f"{key[0]}::{key[1]}" in bodied]:
        del bare.functions[key]
    return probe(bare, engine)


def _versions_of(op_type: str) -> list[int]:
    return [
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == op_type and schema.domain == ""
    ]


def _steps(attempt: Attempt, breaks: Sequence[Break], catalog: Catalog) -> Iterator[Step]:
    changes = [change for item in attempt.fitted.values() for change in item.adaptations]
    nodes: dict[str, list[str]] = {}
    for node in attempt.model.graph.all_nodes():
        nodes.setdefault(describe_operator(node.domain, node.op_type), []).append(describe_node(node))
    functions = {describe_operator(domain, name) for domain, name, _ in attempt.model.functions}
    broken = {found.target: found for found in breaks}
    for operator, names in nodes.items():
        found = broken.get(operator)
        rung: Rung = "native"
        provider, detail = "onnx", ""
        if operator in attempt.kernels:
            rung, provider = "kernel", _provider(operator, catalog)
            detail = "its function body is kept too" if operator in functions else ""
        elif operator in attempt.bodied:
            rung, provider = "function", _provider(operator, catalog)
        elif found is not None and not found.mended:
            rung, provider, detail = "missing", "", found.reason
        elif operator in functions:
            rung, detail = "function", "the model's own"
        elif found is not None:
            rung, detail = _mended_by(operator, changes)
        yield Step(operator, rung, len(names), tuple(names[:5]), provider, detail)


def _provider(operator: str, catalog: Catalog) -> str:
    """Who declares a body or a kernel: the user, or opbridge for the operators that old nodes become."""
    if operator.startswith("opbridge_vision::"):
        return "catalog"
    own, users = ({spec.target for spec in specs} for specs in (catalog.builtin, catalog.user))
    return "catalog" if operator in own - users else "user"


def _mended_by(operator: str, changes: Sequence[Adaptation]) -> tuple[Rung, str]:
    """The rung on which the engine accepts an operator that it refused at first, and the change that was made."""
    own = next((change.what for change in changes if change.operator == operator), "")
    return ("decompose", own) if own else ("opset", next((item.what for item in changes if item.opset is not None), ""))
