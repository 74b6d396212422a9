"""Converts a model from its opset to another, one opset at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from opbridge.onnx_model.adaptation import Adaptation
from opbridge.onnx_model.infer import fill_types
from opbridge.onnx_model.names import describe_node, describe_operator
from opbridge.onnx_model.opsets.building import Builder, Names
from opbridge.onnx_model.opsets.result import CannotExpress, ConvertedOpset, Unexpressed
from opbridge.onnx_model.opsets.schemas import (
    attribute_default,
    breaches,
    changed_at,
    find_schema,
    is_standard,
    mistyped,
)
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import Direction, Step, find_step, is_declared_alike
from opbridge.onnx_model.opsets.widening import widen
from opbridge.onnx_model.scopes import scopes

__all__ = ["NEWEST_OPSET", "OLDEST_OPSET", "convert_opset"]

OLDEST_OPSET = 11
NEWEST_OPSET = onnx.defs.onnx_opset_version()
_FUNCTIONS_IR_VERSION, _OVERLOADS_IR_VERSION = 8, 10


def convert_opset(
    model: ir.Model, opset: int, *, ir_version: int | None = None, kept: Callable[[ir.Node], bool] = lambda _: False
) -> ConvertedOpset:
    """Convert a model to another opset of the standard domain.

    Subgraphs and model-local functions are converted too. Functions are inlined if the IR version has no functions, or
    if a body can be expressed only for the types of one call. Nodes in other domains are not changed.

    Args:
        model: The model, which is not changed; its tensors are shared with the result.
        opset: The new opset, from :data:`OLDEST_OPSET` to :data:`NEWEST_OPSET`.
        ir_version: The IR version of the result; by default the model's, limited by the opset.
        kept: Whether a node stays as it is, even if it is not valid in the new opset.

    Returns:
        The converted model, and the nodes that cannot be expressed.
    """
    source = model.opset_imports.get("", model.opset_imports.get("ai.onnx", opset))
    version = _ir_version(model, source, opset) if ir_version is None else ir_version
    overloaded = any(overload for _, _, overload in model.functions)
    inlined = bool(model.functions) and version < (_OVERLOADS_IR_VERSION if overloaded else _FUNCTIONS_IR_VERSION)
    walk = _Walk(_prepared(model, inlined), opset, kept)
    walk.run()
    if walk.unexpressed_in_functions and not inlined:
        inlined = True
        walk = _Walk(_prepared(model, inlined), opset, kept)
        walk.run()
    walk.model.ir_version = version
    changes = walk.changes()
    if inlined:
        names = tuple(describe_operator(domain, name) for domain, name, _ in model.functions)
        changes = (Adaptation("its functions are inlined", names), *changes)
    return ConvertedOpset(walk.model, source, opset, changes, tuple(walk.unexpressed.values()))


def _ir_version(model: ir.Model, source: int, opset: int) -> int:
    own = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    return min(model.ir_version, own) if opset < source else max(model.ir_version, own)


def _prepared(model: ir.Model, inlined: bool) -> ir.Model:
    copy = model.clone()
    if inlined:
        copy = _with_one_opset(copy)
        InlinePass()(copy)
        copy.functions.clear()
    for scope in (copy, *copy.functions.values()):
        if "ai.onnx" in scope.opset_imports:
            scope.opset_imports[""] = scope.opset_imports.pop("ai.onnx")
    fill_types(copy, shapes=True)
    return copy


def _with_one_opset(model: ir.Model) -> ir.Model:
    """The model with all functions converted to its opset, which applies to their nodes once they are inlined."""
    own = model.opset_imports.get("")
    others = {function.opset_imports.get("", own) for function in model.functions.values()}
    if own is None or others == {own}:
        return model
    walk = _Walk(_prepared(model, inlined=False), own, lambda _: False)
    walk.run()
    return walk.model


class _Walk:
    """The conversion of one model, and its result."""

    def __init__(self, model: ir.Model, opset: int, kept: Callable[[ir.Node], bool]) -> None:
        self.model = model
        self.unexpressed: dict[tuple[str, str], Unexpressed] = {}
        self.unexpressed_in_functions = False
        self._opset = opset
        self._kept = kept
        self._names = Names(model)
        self._done: dict[tuple[str, str], dict[str, None]] = {}
        self._origins: dict[ir.Node, tuple[str, str]] = {}
        self._stuck: set[ir.Node] = set()
        self._made: set[ir.Node] = set()
        self._unused = {id(value) for value in model.graph.initializers.values() if not value.uses()}

    def run(self) -> None:
        for scope in scopes(self.model):
            before = len(self.unexpressed)
            self._walk(scope)
            self.unexpressed_in_functions |= scope is not self.model.graph and len(self.unexpressed) > before

    def changes(self) -> tuple[Adaptation, ...]:
        return tuple(
            Adaptation(f"{operator}: {what}", tuple(nodes), operator) for (operator, what), nodes in self._done.items()
        )

    def _walk(self, scope: ir.Graph | ir.Function) -> None:
        source = scope.opset_imports.get("", self._opset)
        for node in scope.all_nodes():
            if is_standard(node):
                node.domain, node.version = "", source
        if self._opset < source:
            for version in range(source, self._opset, -1):
                self._pass(scope, "down", version, version, version - 1)
        else:
            for version in range(source + 1, self._opset + 1):
                self._pass(scope, "up", version, version - 1, version)
        scope.opset_imports[""] = self._opset
        self._check(scope)
        self._sweep(scope)

    def _pass(self, scope: ir.Graph | ir.Function, direction: Direction, changed: int, opset: int, target: int) -> None:
        """Convert every node from ``opset`` to ``target``; ``changed`` is the newer of the two."""
        waiting = list(scope.all_nodes())
        while waiting:
            later: list[ir.Node] = []
            for node in waiting:
                if self._converts(node) and node.graph is not None:
                    self._step(node, direction, changed, opset, target, later)
            waiting = later

    def _converts(self, node: ir.Node) -> bool:
        return is_standard(node) and node not in self._stuck and not self._kept(node)

    def _step(
        self, node: ir.Node, direction: Direction, changed: int, opset: int, target: int, later: list[ir.Node]
    ) -> None:
        if not changed_at(node.op_type, changed):
            node.version = target
            return
        origin = self._origin(node)

        def made(new: ir.Node) -> None:
            self._origins[new] = origin
            self._made.add(new)

        def queued(new: ir.Node) -> None:
            made(new)
            later.append(new)

        step = find_step(direction, node.op_type, changed)
        site = Site(node, opset, target, Builder(node, target, self._names, made),
                    Builder(node, opset, self._names, queued))  # fmt: skip
        try:
            what = _apply(step, site, direction, changed)
        except CannotExpress as refusal:
            self._refuse(node, str(refusal))
            return
        if not site.replaced:
            node.version = target
        if what:
            self._done.setdefault((origin[1], what), {})[origin[0]] = None

    def _origin(self, node: ir.Node) -> tuple[str, str]:
        own = (describe_node(node), describe_operator(node.domain, node.op_type))
        return self._origins.setdefault(node, own)

    def _refuse(self, node: ir.Node, reason: str) -> None:
        self._stuck.add(node)
        name, operator = self._origin(node)
        self.unexpressed.setdefault((name, operator), Unexpressed(name, operator, reason))

    def _check(self, scope: ir.Graph | ir.Function) -> None:
        """Refuse nodes that are not valid in the new opset."""
        for node in scope.all_nodes():
            if self._converts(node):
                schema = find_schema(node.op_type, self._opset)
                reason = f"opset {self._opset} has no such operator" if schema is None else breaches(node, schema)
                if reason is None and (wrong := mistyped(node, schema)):
                    reason = f"opset {self._opset} does not take the type of {wrong[0][2].name}"
                if reason is not None:
                    self._refuse(node, reason)
            node.version = None

    def _sweep(self, scope: ir.Graph | ir.Function) -> None:
        """Remove constants and new nodes that are not used."""
        for node in reversed(list(scope.all_nodes())):
            used = any(value.uses() or value.is_graph_output() for value in node.outputs)
            new = node in self._made or (node.op_type == "Constant" and not node.domain)
            if new and not used and node.graph is not None:
                node.graph.remove(node, safe=True)
        if isinstance(scope, ir.Graph):
            for name, value in list(scope.initializers.items()):
                kept = value.uses() or value.is_graph_output() or value.is_graph_input() or id(value) in self._unused
                if not kept:
                    del scope.initializers[name]


def _apply(step: Step | None, site: Site, direction: Direction, changed: int) -> str:
    """Convert a node across one change, and return a description of what was done, if anything."""
    node = site.node
    what = ""
    if step is not None:
        before = _signature(site)
        step.convert(site)
        if site.replaced:
            return step.summary
        what = step.summary if _signature(site) != before else ""
    elif not is_declared_alike(direction, node.op_type, changed):
        raise CannotExpress(f"opbridge has no step for the change of {node.op_type} in opset {changed}")
    schema = find_schema(node.op_type, site.target)
    if schema is None:
        raise CannotExpress(f"opset {site.target} has no such operator")
    breach = breaches(node, schema)
    if breach is not None:
        raise CannotExpress(f"{breach} in opset {site.target}")
    if mistyped(node, schema):
        widen(site)
        return what or "casts around it"
    return what


def _signature(site: Site) -> tuple[object, ...]:
    """The inputs of the node, and its attributes that differ from the defaults."""
    node, schema = site.node, find_schema(site.node.op_type, site.opset)
    values: Iterable[object] = (id(value) for value in node.inputs)
    attributes = ((name, repr(item.value)) for name, item in sorted(node.attributes.items()))
    return (*values, *(item for item in attributes if item[1] != repr(attribute_default(schema, item[0]))))
