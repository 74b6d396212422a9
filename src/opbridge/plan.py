"""Stage 2: ``plan`` which rung of the ladder each operator takes, and decompose the program accordingly, once."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from opbridge import torch_internals
from opbridge.bodies import Bodies, capture_bodies
from opbridge.catalog import Catalog
from opbridge.custom_ops import CustomCall, keep_custom_nodes
from opbridge.errors import OpbridgeError, TranslationError
from opbridge.sources import source_of_node, source_of_stack_trace
from opbridge.spec import LOWEST_OPSET, OpSpec
from opbridge.targets import display_name, functional_target, target_key

__all__ = ["Missing", "Plan", "Step", "plan"]


@dataclasses.dataclass(frozen=True)
class Step:
    """The rung one operator takes.

    Attributes:
        target: The torch operator, "aten::cummax".
        rung: "native", "opset", "rewrite", "decompose", "translate" or "function".
        count: How often it occurs in the model.
        sources: ``file:line`` in the user's model, the first few places.
        provider: Whose mapping it is: "torch", "catalog" or "user".
        detail: What there is to say about it, in a line.
        overrides: Why torch's own mapping is replaced; empty if it is not.
    """

    target: str
    rung: str
    count: int
    sources: tuple[str, ...]
    provider: str
    detail: str = ""
    overrides: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The step as JSON data, without the source lines (they depend on the machine)."""
        return {
            "target": self.target,
            "rung": self.rung,
            "count": self.count,
            "provider": self.provider,
            "detail": self.detail,
        }


@dataclasses.dataclass(frozen=True)
class Missing:
    """An operator that nothing maps to ONNX.

    Attributes:
        target: :func:`~opbridge.torch_internals.target_key` of the operator, "aten::cummax.default".
        count: How often it occurs.
        sources: ``file:line`` in the user's model.
        reason: Why no rung serves it.
    """

    target: str
    count: int
    sources: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be done for one model.

    Attributes:
        program: The decomposed program; what it still holds is mapped, kept as a custom node, or in ``missing``.
        opset: The lowest version of the standard domain that serves every operator.
        opset_reason: Which operator forced it, or that none did.
        floor: The opset without the operator that forced a higher one.
        steps: One per distinct operator of the captured graph, and per operator mended inside another.
        chosen: The mapping of the user or the catalog in force for each operator that has one, by target key.
        translations: What ``torch.onnx.export`` takes as its ``custom_translation_table``.
        bodies: The function bodies of the custom-domain nodes; None without such nodes.
        bodies_plan: The plan for ``bodies``.
        missing: The operators that nothing maps.
    """

    program: torch.export.ExportedProgram
    opset: int
    opset_reason: str
    floor: int
    steps: tuple[Step, ...]
    chosen: Mapping[str, OpSpec]
    translations: Mapping[Any, Callable[..., Any]]
    bodies: Bodies | None
    bodies_plan: Plan | None
    missing: tuple[Missing, ...]

    def mapping_of(self, key: str) -> str:
        """What names the mapping in force for a target key, for :func:`plan`'s ``refused``."""
        return f"{key}@{self.chosen[key].rung}" if key in self.chosen else key


class _Decomposed(torch.export.ExportedProgram):
    """A program that is decomposed already: torch.onnx asks it to decompose again, and gets it as it is."""

    def run_decompositions(self, *args: Any, **kwargs: Any) -> torch.export.ExportedProgram:
        return self


def plan(
    program: torch.export.ExportedProgram,
    catalog: Catalog,
    *,
    opset: int | None = None,
    newest_opset: int = 10_000,
    raised: Mapping[str, int] = MappingProxyType({}),
    refused: frozenset[str] = frozenset(),
    rewrites: tuple[str, ...] = (),
    whole: torch.export.ExportedProgram | None = None,
) -> Plan:
    """Choose a rung for every operator of a captured program.

    Args:
        program: As captured, or its distinct operators. It is not changed.
        catalog: The mappings in force.
        opset: The opset the user asks for; by default the lowest that serves every operator.
        newest_opset: The newest opset that every engine knows.
        raised: The opset from which on the engines have kernels for what an operator becomes, by target key, from an
            earlier round.
        refused: Mappings not to take again (:meth:`Plan.mapping_of`): an engine refused what they gave, or they failed.
        rewrites: The rewrites that were taken while capturing, for the list of steps.
        whole: The program to count the steps in, where ``program`` holds only its distinct operators.

    Raises:
        TranslationError: A decomposition of the catalog or of the user fails on this model.
    """
    floor = opset or max((LOWEST_OPSET, *raised.values()))
    chosen = _choose(program, catalog, refused)
    mapped = {key: introduced for key, introduced in torch_internals.mapped_targets().items() if key not in refused}
    recorder = _Recorder()
    decomposed = _decompose(program, chosen, {key for key, needs in mapped.items() if needs <= floor}, recorder)
    _remove_assertions(decomposed)
    calls = keep_custom_nodes(decomposed, {key: spec for key, spec in chosen.items() if spec.rung == "function"})
    needs = {key: spec.opset for key, spec in chosen.items() if spec.rung == "translate"}
    missing = _missing(decomposed, mapped, needs, opset or newest_opset)
    final, reason = _lowest_opset(decomposed, floor, mapped, needs)
    bodies = capture_bodies(calls) if calls else None
    inner = (
        plan(bodies.program, catalog, opset=opset, newest_opset=newest_opset, raised=raised, refused=refused)
        if bodies
        else None
    )
    if inner is not None and inner.opset > final:
        final, reason = inner.opset, f"{inner.opset_reason}, inside a function body"
    calls = bodies.calls if bodies else ()
    return Plan(
        program=_as_decomposed(decomposed),
        opset=final,
        opset_reason=reason if final > floor else _reason(opset, raised),
        floor=opset or LOWEST_OPSET,
        steps=tuple(
            _steps(
                whole or program,
                decomposed,
                catalog,
                chosen,
                {**mapped, **raised},
                opset or LOWEST_OPSET,
                recorder,
                rewrites,
            )
        ),
        chosen=chosen,
        translations=_translations(decomposed, chosen, calls),
        bodies=bodies,
        bodies_plan=inner,
        missing=missing + (inner.missing if inner else ()),
    )


def _reason(opset: int | None, raised: Mapping[str, int]) -> str:
    if opset:
        return "asked for"
    if not raised:
        return "the lowest that PyTorch's mappings are written for"
    key = max(raised, key=lambda name: raised[name])
    return f"{display_name(key)} needs opset {raised[key]}"


def _graph_modules(program: torch.export.ExportedProgram) -> Iterator[torch.fx.GraphModule]:
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield module


def calls_in(program: torch.export.ExportedProgram) -> Iterator[torch.fx.Node]:
    """Every ``call_function`` node of the program, those of its subgraphs (branches, loop bodies) included."""
    for module in _graph_modules(program):
        for node in module.graph.nodes:
            if node.op == "call_function":
                yield node


def _choose(program: torch.export.ExportedProgram, catalog: Catalog, refused: frozenset[str]) -> dict[str, OpSpec]:
    """The catalog's and the user's mapping for every torch operator they name, by target key."""
    chosen: dict[str, OpSpec] = {}
    for name in {spec.target.partition(".")[0] for spec in catalog.specs if spec.rung not in ("rewrite", "fake")}:
        namespace, _, operator_name = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), operator_name, None)
        for overload_name in packet.overloads() if packet is not None else ():
            overload = getattr(packet, overload_name)
            spec = catalog.find(overload)
            if spec is not None and f"{target_key(overload)}@{spec.rung}" not in refused:
                chosen[target_key(overload)] = spec
    return chosen


def _overload(key: str) -> torch._ops.OpOverload:
    name, _, overload = key.partition(".")
    namespace, _, operator_name = name.partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), operator_name), overload)


class _Recorder:
    """Which decompositions were taken, for the list of steps."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.sources: dict[str, list[str]] = {}
        self.failure: tuple[str, OpSpec, Exception] | None = None

    def wrap(self, key: str, spec: OpSpec) -> Callable[..., Any]:
        """``spec``'s function, reporting each use and the first failure."""

        @functools.wraps(spec.function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            self.counts[key] += 1
            source = source_of_stack_trace(torch.fx.traceback.get_current_meta().get("stack_trace") or "")
            if source is not None and str(source) not in self.sources.setdefault(key, []):
                self.sources[key].append(str(source))
            try:
                return spec.function(*args, **kwargs)
            except Exception as error:
                self.failure = self.failure or (key, spec, error)
                raise

        return recorded


def _decompose(
    program: torch.export.ExportedProgram, chosen: Mapping[str, OpSpec], native: set[Any], recorder: _Recorder
) -> torch.export.ExportedProgram:
    kept = {key for key, spec in chosen.items() if spec.rung != "decompose"}
    table = torch_internals.decomposition_table(native | kept)
    for key, spec in chosen.items():
        if spec.rung == "decompose":
            table[_overload(key)] = recorder.wrap(key, spec)
    try:
        with torch_internals.decomposing(program), torch.no_grad():
            return program.run_decompositions(table)
    except Exception as error:
        if recorder.failure is None:
            raise TranslationError(
                f"torch can't decompose the captured graph: {_first_line(error)}",
                fix="run with --json for the operators involved; if an operator is named, give it a mapping with "
                "opbridge.decomposition or opbridge.translation.",
                details=str(error),
            ) from error
        key, spec, cause = recorder.failure
        if isinstance(cause, OpbridgeError):
            raise cause from error
        raise TranslationError(
            f"The decomposition of {key} at {spec.source} fails: {type(cause).__name__}: {_first_line(cause)}"
            + "".join(f"\n  used at {place}" for place in recorder.sources.get(key, [])[:3]),
            fix="mend the function at that place; it is traced, so it must not read a tensor's contents.",
            details=str(cause),
        ) from error


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


_ASSERTIONS = {
    "aten::_assert_async.default",
    "aten::_assert_async.msg",
    "aten::_assert_scalar.default",
    "aten::_assert_tensor_metadata.default",
    "aten::_functional_assert_async.msg",
    "aten::sym_constrain_range.default",
    "aten::sym_constrain_range_for_size.default",
}


def _remove_assertions(program: torch.export.ExportedProgram) -> None:
    """Drop the checks an engine does not make, and what was computed only for them."""
    for module in _graph_modules(program):
        for node in reversed(module.graph.nodes):
            if node.op == "call_function" and target_key(node.target) in _ASSERTIONS and not node.users:
                module.graph.erase_node(node)
        module.graph.eliminate_dead_code()
        module.recompile()


def _has_complex_input(node: torch.fx.Node) -> bool:
    values = (value.meta.get("val") for value in node.all_input_nodes)
    return any(isinstance(value, torch.Tensor) and value.dtype.is_complex for value in values)


def _opset_of(node: torch.fx.Node, mapped: Mapping[Any, int], needs: Mapping[Any, int]) -> int | None:
    """The lowest opset of the mapping of a decomposed node; None if nothing maps it."""
    if isinstance(node.target, CustomCall):
        return LOWEST_OPSET
    key = target_key(node.target)
    if key in needs:
        return needs[key]
    table = torch_internals.mapped_targets(complex_inputs=True) if _has_complex_input(node) else mapped
    # torch.onnx unpacks several outputs by itself.
    return LOWEST_OPSET if key is _GETITEM else table.get(key)


_GETITEM = operator.getitem


def _missing(
    program: torch.export.ExportedProgram, mapped: Mapping[Any, int], needs: Mapping[Any, int], limit: int
) -> tuple[Missing, ...]:
    counts: Counter[str] = Counter()
    sources: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for node in calls_in(program):
        required = _opset_of(node, mapped, needs)
        if required is not None and required <= limit:
            continue
        key = str(target_key(node.target))
        counts[key] += 1
        reasons[key] = (
            f"its mapping needs opset {required}, and {limit} is the newest allowed"
            if required is not None
            else "neither torch nor the catalog maps it to ONNX" + (" for complex tensors" * _has_complex_input(node))
        )
        source = source_of_node(node)
        if source is not None and str(source) not in sources.setdefault(key, []):
            sources[key].append(str(source))
    return tuple(Missing(key, count, tuple(sources.get(key, ())), reasons[key]) for key, count in counts.items())


def _lowest_opset(
    program: torch.export.ExportedProgram, floor: int, mapped: Mapping[Any, int], needs: Mapping[Any, int]
) -> tuple[int, str]:
    final, reason = floor, ""
    for node in calls_in(program):
        required = _opset_of(node, mapped, needs)
        if required is not None and required > final:
            final, reason = required, f"{display_name(target_key(node.target))} needs opset {required}"
    return final, reason


def _translations(
    program: torch.export.ExportedProgram, chosen: Mapping[str, OpSpec], calls: tuple[CustomCall, ...]
) -> dict[Any, Callable[..., Any]]:
    table: dict[Any, Callable[..., Any]] = {call: _unbound(call.emit) for call in calls}
    for node in calls_in(program):
        spec = chosen.get(target_key(node.target)) if isinstance(node.target, torch._ops.OpOverload) else None
        if spec is not None and spec.rung == "translate":
            table[node.target] = _unbound(spec.function)
    return table


def _unbound(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own for torch.onnx, which writes an attribute on what it is given."""

    @functools.wraps(function)
    def translation(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return translation


def _as_decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    program.__class__ = _Decomposed
    return program


_UNREMARKABLE = {"aten::sym_size.int", "aten::sym_numel.default", "aten::sym_stride.int"} | _ASSERTIONS


def _steps(
    captured: torch.export.ExportedProgram,
    decomposed: torch.export.ExportedProgram,
    catalog: Catalog,
    chosen: Mapping[str, OpSpec],
    mapped: Mapping[Any, int],
    floor: int,
    recorder: _Recorder,
    rewrites: tuple[str, ...],
) -> Iterator[Step]:
    providers = {spec.target: catalog.provider(spec) for spec in catalog.rewrites()}
    for target in rewrites:
        yield Step(target, "rewrite", 1, (), providers.get(target, "catalog"), "replaced while capturing")
    left = {str(target_key(node.target)) for node in calls_in(decomposed)}
    counts: Counter[str] = Counter()
    sources: dict[str, dict[str, None]] = {}
    keys: dict[str, Any] = {}
    for node in (*calls_in(captured), *_mended_inside(captured, decomposed, chosen)):
        key = target_key(functional_target(node.target))
        if key in _UNREMARKABLE or not isinstance(node.target, torch._ops.OperatorBase):
            continue
        name = str(key)
        keys[name] = key
        counts[name] += 1
        place = source_of_node(node)
        if place is not None:
            sources.setdefault(name, {})[str(place)] = None
    for name, count in recorder.counts.items():
        if name not in keys:
            keys[name] = name
            counts[name] = count
            sources[name] = dict.fromkeys(recorder.sources.get(name, ()))
    for name, key in keys.items():
        rung, provider, detail = _rung(key, name, left, catalog, chosen, mapped, floor)
        overrides = chosen[name].overrides if name in chosen else ""
        yield Step(display_name(key), rung, counts[name], tuple(sources.get(name, ()))[:5], provider, detail, overrides)


def _mended_inside(
    captured: torch.export.ExportedProgram, decomposed: torch.export.ExportedProgram, chosen: Mapping[str, OpSpec]
) -> Iterator[torch.fx.Node]:
    """Nodes with a mapping of ours that appeared only when torch decomposed another operator."""
    direct = {target_key(functional_target(node.target)) for node in calls_in(captured)}
    for node in calls_in(decomposed):
        key = target_key(node.target)
        if key in chosen and key not in direct and chosen[key].rung == "translate":
            yield node


def _rung(
    key: Any,
    name: str,
    left: set[str],
    catalog: Catalog,
    chosen: Mapping[str, OpSpec],
    mapped: Mapping[Any, int],
    floor: int,
) -> tuple[str, str, str]:
    spec = chosen.get(name)
    if spec is not None:
        return spec.rung, catalog.provider(spec), spec.overrides or spec.summary
    if key in mapped and mapped[key] > floor:
        return "opset", "torch", f"opset {mapped[key]} has it"
    if key in mapped or isinstance(key, torch._ops.HigherOrderOperator):
        return "native", "torch", ""
    if name in left:
        return "missing", "", "no mapping"
    return "native", "torch", "torch decomposes it"
