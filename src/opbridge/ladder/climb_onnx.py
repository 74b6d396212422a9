"""Climbs the ladder for an existing ONNX model, which enters the flow at ``adapt``.

What an engine refuses is mended by, in this order: the body that is declared for a custom node, a kernel, casts and the
standard's own bodies (``passes/``), another opset.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from opbridge.engines.base import Engine, Refusal
from opbridge.engines.probe import probe
from opbridge.engines.versions import ORIGIN, Versions, bring_to_versions, forget_origins, lowest_ir_version
from opbridge.errors import UnsupportedOperatorError
from opbridge.ladder.adapt import Adaptation, Fitted, fit
from opbridge.ladder.build import Built
from opbridge.ladder.climbed import Break, NoCompiler
from opbridge.ladder.foreign_bodies import attach_bodies
from opbridge.ladder.kernel_rung import build_kernels, buildable, kernels_in
from opbridge.ladder.step import Step
from opbridge.onnx_model.names import describe_node, describe_operator
from opbridge.onnx_model.opsets import NEWEST_OPSET, OLDEST_OPSET
from opbridge.onnx_model.scopes import all_nodes

if TYPE_CHECKING:
    from opbridge.catalog.declare.catalog import Catalog
    from opbridge.kernels.library import KernelOperator

__all__ = ["ClimbedModel", "climb_onnx"]

_MOST_OPSETS = 6


@dataclasses.dataclass(frozen=True)
class ClimbedModel:
    """Where the ladder ended for an ONNX model.

    Attributes:
        original: The model that was given, with the bodies that are declared for its custom nodes.
        models: The model of each engine, by its name.
        adaptations: What was changed for each engine.
        breaks: Every broken link met on the way, in order.
        built: The kernels of each engine that has some, by its name.
        steps: The rung of each operator.
        opset: The opset of the engines' models, the highest of several.
        opset_reason: Why it is that one.
        bodied: ``"domain::Op"`` of the custom nodes that were given a declared body.
        no_compiler: The kernels that are not built, if there is no compiler.
    """

    original: ir.Model
    models: Mapping[str, ir.Model]
    adaptations: Mapping[str, tuple[Adaptation, ...]]
    breaks: tuple[Break, ...]
    built: Mapping[str, Built]
    steps: tuple[Step, ...]
    opset: int
    opset_reason: str
    bodied: tuple[str, ...] = ()
    no_compiler: NoCompiler | None = None


def climb_onnx(
    model: ir.Model,
    catalog: Catalog | None,
    engines: Sequence[Engine],
    *,
    asked: Versions,
    dry: bool = False,
    report: Callable[[str], None] = lambda stage: None,
) -> ClimbedModel:
    """Bring an ONNX model to the engines.

    Args:
        model: As it was read. It is not changed.
        catalog: The declared bodies; None where there are none.
        engines: Each is asked for every node.
        asked: The opset and the IR version that the user asks for.
        dry: Do not stop at what can't be mended.
        report: Told the stage that begins.

    Raises:
        UnsupportedOperatorError: No rung is left for some nodes (unless dry); all are named.
        BuildError: A kernel does not compile; or there is no compiler, and no function body either (unless dry).
    """
    report("adapting")
    original = _named(model.clone())
    bodied = _attach_bodies(original, catalog)
    kernels, no_compiler = buildable(kernels_in(original), original, engines, dry=dry)
    built = {} if dry else build_kernels(kernels, engines, report)
    report("probing")
    fitted: dict[str, Fitted] = {}
    breaks: list[Break] = []
    targets = [kernel.target for kernel in kernels]
    for engine in engines:
        operators = built[engine.name].library.operators if engine.name in built else ()
        climb = _Climb(original, engine, asked, operators, targets if engine.takes_kernels else ())
        fitted[engine.name] = climb.best()
        breaks += climb.breaks(fitted[engine.name], bodied)
    lost = [found for found in breaks if not found.mended]
    if lost and not dry:
        raise _unsupported(lost)
    for item in fitted.values():
        forget_origins(item.model)
    forget_origins(original)
    changes = [change for item in fitted.values() for change in item.adaptations]
    opset = max(item.model.opset_imports.get("", 0) for item in fitted.values())
    return ClimbedModel(
        original,
        {name: item.model for name, item in fitted.items()},
        {name: item.adaptations for name, item in fitted.items()},
        tuple(breaks),
        built,
        tuple(_steps(original, breaks, bodied, targets, changes)),
        opset,
        _reason(original, opset, asked),
        bodied,
        no_compiler,
    )


def _named(model: ir.Model) -> ir.Model:
    """Every node gets a name, which stays known in what is made of it: breaks and adaptations speak of names."""
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


def _attach_bodies(model: ir.Model, catalog: Catalog | None) -> tuple[str, ...]:
    if catalog is None:
        return ()
    return tuple(attach_bodies(model, catalog))


class _Climb:
    """One engine's climb."""

    def __init__(
        self,
        original: ir.Model,
        engine: Engine,
        asked: Versions,
        operators: Sequence[KernelOperator],
        kernels: Sequence[str],
    ) -> None:
        self._original = original
        self._engine = engine
        self._asked = asked
        self._operators = operators
        self._kernels = kernels

    def best(self) -> Fitted:
        """The model of the opset at which the engine refuses least; the model's own wins a tie."""
        best = self._at(None)
        if self._asked.opset is None:
            for opset in self._other_opsets(best.refusals):
                other = self._at(opset)
                if len(other.refusals) < len(best.refusals):
                    best = other
                if not best.refusals:
                    break
        return best

    def _at(self, opset: int | None) -> Fitted:
        return fit(self._original, self._engine, self._asked, self._operators, self._kernels, opset=opset)

    def _other_opsets(self, refusals: Sequence[Refusal]) -> list[int]:
        """The opsets at which a refused operator has another form: the newer ones first, from near to far."""
        own = min(self._original.opset_imports.get("", NEWEST_OPSET), self._engine.newest_opset)
        newest = min(NEWEST_OPSET, self._engine.newest_opset)
        newer: set[int] = set()
        older: set[int] = set()
        for refusal in refusals:
            domain, _, op_type = refusal.operator.partition("::")
            for version in _versions_of(op_type) if domain == "ai.onnx" else ():
                (newer if version > own else older).add(version if version > own else version - 1)
        candidates = sorted(n for n in newer if n <= newest)
        candidates += sorted((n for n in older if OLDEST_OPSET <= n < own), reverse=True)
        if self._asked.ir_version is not None:
            candidates = [n for n in candidates if lowest_ir_version(n) <= self._asked.ir_version]
        return candidates[:_MOST_OPSETS]

    def breaks(self, best: Fitted, bodied: Sequence[str]) -> Iterator[Break]:
        """What the engine refuses of the model as it is, and whether it is mended."""
        begun = bring_to_versions(self._original, self._engine, Versions(), kernels=self._kernels)
        untouched = _refused_as_it_is(begun.model, self._engine, bodied) if not begun.refusals else begun.refusals
        operators = {
            node.name: describe_operator(node.domain, node.op_type) for node in self._original.graph.all_nodes()
        }
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
            yield Break(operator, "kernel", first.reason, nodes, self._engine.name, first.operator, mended, first.opset)


def _refused_as_it_is(model: ir.Model, engine: Engine, bodied: Sequence[str]) -> tuple[Refusal, ...]:
    """What the engine refuses of a model to which nothing is done; a declared body does not count."""
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


def _steps(
    original: ir.Model,
    breaks: Sequence[Break],
    bodied: Sequence[str],
    kernels: Sequence[str],
    changes: Sequence[Adaptation],
) -> Iterator[Step]:
    nodes: dict[str, list[str]] = {}
    for node in original.graph.all_nodes():
        nodes.setdefault(describe_operator(node.domain, node.op_type), []).append(describe_node(node))
    functions = {describe_operator(domain, name) for domain, name, _ in original.functions}
    broken = {found.target: found for found in breaks}
    for operator, names in nodes.items():
        found = broken.get(operator)
        rung, provider, detail = "native", "onnx", ""
        if operator in kernels:
            rung, provider = "kernel", "user"
            detail = "its function body is kept beside the kernel" if operator in functions else ""
        elif operator in bodied:
            rung, provider = "function", "user"
        elif found is not None and not found.mended:
            rung, provider, detail = "missing", "", found.reason
        elif operator in functions:
            rung, detail = "function", "the model's own"
        elif found is not None:
            rung, detail = _mended_by(operator, changes)
        yield Step(operator, rung, len(names), tuple(names[:5]), provider, detail)


def _mended_by(operator: str, changes: Sequence[Adaptation]) -> tuple[str, str]:
    """The rung on which the engine takes an operator after all, and what was done."""
    own = next((change.what for change in changes if change.operator == operator), "")
    return ("decompose", own) if own else ("opset", next((item.what for item in changes if item.opset is not None), ""))


def _reason(original: ir.Model, opset: int, asked: Versions) -> str:
    if asked.opset is not None:
        return "asked for"
    own = original.opset_imports.get("")
    return "the model's own" if opset == own else f"the model's own, {own}, is refused"


def _unsupported(breaks: Sequence[Break]) -> UnsupportedOperatorError:
    lines = [
        f"  {found.target}: {found.reason} [{found.engine}] (node {', '.join(map(repr, found.sources[:3]))}"
        + (f" and {len(found.sources) - 3} more)" if len(found.sources) > 3 else ")")
        for found in breaks
    ]
    count = "1 operator has" if len(lines) == 1 else f"{len(lines)} operators have"
    custom = next((found.target for found in breaks if not found.target.startswith("ai.onnx::")), "")
    fix = (
        f"declare what {custom} computes with @opbridge.body_for({custom!r}) in torch operators, or give it a kernel "
        f"with opbridge.kernel_for({custom!r}, 'file.h'), in a file named with --ops."
        if custom
        else "try another --opset, another version of the engine (--engine NAME==VERSION), or replace the nodes."
    )
    return UnsupportedOperatorError(
        f"{count} no way to the engine:\n" + "\n".join(lines), fix=fix, targets=[found.target for found in breaks]
    )
