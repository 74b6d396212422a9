"""The steps of a plan: the rung of each operator, or why there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import torch

from opbridge.catalog.complex.rules import rules
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.spec import OpSpec
from opbridge.ladder.step import Rung, Step
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.sources import source_of_stack_trace
from opbridge.torch_graph.targets import calls_in, display_name, functional_target, overload_of, target_key

__all__ = ["Missing", "Step", "Uses", "find_missing", "list_steps"]


@dataclasses.dataclass(frozen=True)
class Missing:
    """An operator without a mapping to ONNX.

    Attributes:
        target: The operator that needs a mapping, "aten::cummax.default".
        leaf: The target key in the decomposed graph: ``target``, or the prim that torch decomposes it to.
        origin: The original operator in the captured graph, as torch prints it ("aten.cummax.default").
        count: The number of uses.
        sources: ``file:line`` in the user's model.
        reason: Why no rung supports the operator.
    """

    target: str
    leaf: str
    origin: str
    count: int
    sources: tuple[str, ...]
    reason: str


class Uses:
    """The uses of operators, counted by captured node, so that a graph that is traced twice is counted once."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, None]] = {}
        self._sources: dict[str, dict[str, None]] = {}

    def note(self, key: str, meta: Mapping[str, Any]) -> None:
        """Record a use of ``key`` by the node with the metadata ``meta``."""
        source = source_of_stack_trace(meta.get("stack_trace") or "")
        self._nodes.setdefault(key, {})[_captured_name(meta)] = None
        if source is not None:
            self._sources.setdefault(key, {})[str(source)] = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def count(self, key: str) -> int:
        """The number of captured nodes that use an operator."""
        return len(self._nodes.get(key, ()))

    def sources(self, key: str, limit: int = 5) -> tuple[str, ...]:
        """The first uses of an operator in the user's model, as ``file:line``."""
        return tuple(self._sources.get(key, ()))[:limit]


def _captured_name(meta: Mapping[str, Any]) -> str:
    history = meta.get("from_node")
    return str(history[-1].name) if history else ""


def _captured_target(node: torch.fx.Node) -> str:
    history = node.meta.get("from_node")
    return str(history[-1].target) if history else str(node.target)


def find_missing(
    program: torch.export.ExportedProgram, opset_of: Callable[[torch.fx.Node], int | None], limit: int
) -> tuple[Missing, ...]:
    """The operators of a decomposed program that have no mapping at an opset up to ``limit``.

    Args:
        program: The decomposed program.
        opset_of: A function that returns the lowest opset of the mapping of a node; None if there is no mapping.
        limit: The newest opset allowed.
    """
    found: dict[str, list[torch.fx.Node]] = {}
    for node in calls_in(program):
        required = opset_of(node)
        if required is None or required > limit:
            found.setdefault(str(target_key(node.target)), []).append(node)
    return tuple(_missing(leaf, nodes, opset_of(nodes[0]), limit) for leaf, nodes in found.items())


def _missing(leaf: str, nodes: list[torch.fx.Node], required: int | None, limit: int) -> Missing:
    uses = Uses()
    for node in nodes:
        uses.note(leaf, node.meta)
    original = nodes[0].meta.get("original_aten")
    target = str(target_key(original)) if leaf.startswith("prims::") and original is not None else leaf
    reason = "no mapping to ONNX in torch.onnx or in opbridge"
    if required is not None:
        reason = f"its mapping needs opset {required}, and {limit} is the newest allowed"
    elif has_complex_input(nodes[0]):
        reason += " for complex tensors"
    return Missing(target, leaf, _captured_target(nodes[0]), max(1, uses.count(leaf)), uses.sources(leaf), reason)


def has_complex_input(node: torch.fx.Node) -> bool:
    """Whether a node has a complex input."""
    values = (value.meta.get("val") for value in node.all_input_nodes)
    return any(isinstance(value, torch.Tensor) and value.dtype.is_complex for value in values)


_UNREMARKABLE = {"aten::sym_size.int", "aten::sym_numel.default", "aten::sym_stride.int"}


def list_steps(
    captured: torch.export.ExportedProgram,
    catalog: Catalog,
    chosen: Mapping[str, OpSpec],
    *,
    mapped: Mapping[Any, int],
    floor: int,
    mended_inside: Uses,
    missing: Iterable[Missing],
    ignored: set[str],
) -> Iterator[Step]:
    """One step per distinct operator of the captured graph, and per operator mapped inside another.

    Args:
        captured: The captured program.
        catalog: The catalog, which determines the provider of each mapping.
        chosen: The mapping of the user or the catalog for each operator that has one, by target key.
        mapped: The lowest opset of torch's mapping, by target key.
        floor: The opset of the model if no operator requires a higher one.
        mended_inside: The uses of mappings of the catalog and the user, including those inside other operators.
        missing: The operators without a mapping to ONNX.
        ignored: The target keys of operators that engines do not run.
    """
    uses = Uses()
    keys: dict[str, Any] = {}
    printed: dict[str, str] = {}
    of_complex: set[str] = set()
    for node in calls_in(captured):
        key = target_key(functional_target(node.target))
        if key not in _UNREMARKABLE | ignored and isinstance(node.target, torch._ops.OperatorBase):
            keys.setdefault(str(key), key)
            printed.setdefault(str(key), str(node.target))
            uses.note(str(key), node.meta)
            if has_complex_input(node) and key in rules():
                of_complex.add(str(key))
    counts = _counts(captured)
    lost = {item.origin: item for item in missing}
    for name, key in keys.items():
        gap = lost.get(printed[name])
        rung, provider, detail = _rung(key, catalog, chosen.get(name), mapped, floor, gap)
        if name in of_complex and rung != "missing" and provider != "user":
            rung, provider, detail = "decompose", "catalog", "computed with real and imaginary parts"
        overrides = _overrides(name, chosen[name]) if name in chosen else ""
        yield Step(display_name(key), rung, counts[name], uses.sources(name), provider, detail, overrides)
    for name in mended_inside:
        if name not in keys:
            spec = chosen[name]
            yield Step(
                display_name(name),
                cast("Rung", spec.rung),
                mended_inside.count(name),
                mended_inside.sources(name),
                catalog.provider(spec),
                spec.overrides or spec.summary,
                _overrides(name, spec),
            )


def _overrides(key: str, spec: OpSpec) -> str:
    """Why torch's mapping of this overload is replaced; empty if torch has none."""
    return spec.overrides if spec.overrides and torch_internals.has_way(overload_of(key)) else ""


def _counts(captured: torch.export.ExportedProgram) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in calls_in(captured):
        name = str(target_key(functional_target(node.target)))
        counts[name] = counts.get(name, 0) + 1
    return counts


def _rung(
    key: Any, catalog: Catalog, spec: OpSpec | None, mapped: Mapping[Any, int], floor: int, gap: Missing | None
) -> tuple[Rung, str, str]:
    if gap is not None:
        inside = "" if gap.target == key else f"becomes {display_name(gap.target)}: "
        return "missing", "", f"{inside}{gap.reason}"
    if spec is not None:
        return cast("Rung", spec.rung), catalog.provider(spec), spec.overrides or spec.summary
    if key in mapped and mapped[key] > floor:
        return "opset", "torch", f"opset {mapped[key]} has it"
    if key in mapped or isinstance(key, torch._ops.HigherOrderOperator):
        return "native", "torch", ""
    return "native", "torch", "torch decomposes it"
