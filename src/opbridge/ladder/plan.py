"""Stage 2: ``plan`` which rung of the ladder each operator takes, and decompose the program accordingly, once."""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from opbridge.catalog.complex.rules import with_complex_rules
from opbridge.catalog.complex.simplify import simplify
from opbridge.catalog.declare.catalog import RUNGS, RUNGS_WITH_KERNELS, Catalog
from opbridge.catalog.declare.nan import EXACT, keeping_nan
from opbridge.catalog.declare.spec import OpSpec
from opbridge.errors import OpbridgeError, TranslationError, described_error, first_line
from opbridge.ladder.bodies import Bodies, capture_bodies
from opbridge.ladder.custom_calls import CustomCall, keep_custom_nodes
from opbridge.ladder.inlining import with_implementations
from opbridge.ladder.kept_nan import KeptNan
from opbridge.ladder.opaque_aliases import under_opaque_aliases
from opbridge.ladder.opset_reason import OpsetCause, OpsetReason
from opbridge.ladder.steps import Missing, Step, Uses, find_missing, has_complex_input, list_steps
from opbridge.torch_graph import LOWEST_OPSET
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.bit_operations import without_bit_operations
from opbridge.torch_graph.checks import CHECKS, remove_checks
from opbridge.torch_graph.decomposed import decomposed, failing_line
from opbridge.torch_graph.dimensions import dynamic_axes
from opbridge.torch_graph.float64_sizes import compute_sizes_in_float64
from opbridge.torch_graph.floor_divisions import floor_negative_quotients
from opbridge.torch_graph.promoted_results import promote_integers_beside_numbers, shield_results
from opbridge.torch_graph.signature import user_inputs
from opbridge.torch_graph.silence import silenced
from opbridge.torch_graph.targets import calls_in, display_name, overload_of, target_key
from opbridge.torch_graph.whole_slices import reduce_whole_slices

__all__ = ["Plan", "plan"]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The rung of each operator of one model, and the decomposed program.

    Attributes:
        program: The decomposed program; each of its operators is mapped, kept as a custom node, or in ``missing``.
        opset: The lowest version of the standard domain that supports every operator.
        opset_reason: What determined the opset.
        steps: One step per distinct operator of the captured graph, and per operator mapped inside another.
        chosen: The mapping of the user or the catalog for each operator that has one, by target key.
        translations: The ``custom_translation_table`` of ``torch.onnx.export``.
        bodies: The function bodies of the custom-domain nodes; None if there are no such nodes.
        bodies_plan: The plan for ``bodies``.
        missing: The operators without a mapping to ONNX.
        aliases: The operators that opaque aliases in the program stand for, by the target key of the alias.
    """

    program: torch.export.ExportedProgram
    opset: int
    opset_reason: OpsetReason
    steps: tuple[Step, ...]
    chosen: Mapping[str, OpSpec]
    translations: Mapping[Any, Callable[..., Any]]
    bodies: Bodies | None
    bodies_plan: Plan | None
    missing: tuple[Missing, ...]
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def mapping_of(self, key: str) -> str:
        """The identifier of the mapping for a target key, as in the ``refused`` of :func:`plan`."""
        return f"{key}@{self.chosen[key].rung}" if key in self.chosen else key


class _Decomposed(torch.export.ExportedProgram):
    """A program that is already decomposed: torch.onnx would decompose it again, and gets it unchanged."""

    def run_decompositions(self, *args: Any, **kwargs: Any) -> torch.export.ExportedProgram:
        return self


def plan(
    program: torch.export.ExportedProgram,
    catalog: Catalog,
    *,
    opset: int | None = None,
    newest_opset: int = 10_000,
    served_opset: int = 10_000,
    raised: Mapping[str, int] = MappingProxyType({}),
    refused: frozenset[str] = frozenset(),
    rewrites: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    whole: torch.export.ExportedProgram | None = None,
    kernels: bool = False,
    inlined: bool = True,
) -> Plan:
    """Choose a rung for every operator of a captured program.

    Args:
        program: The captured program, or its distinct operators. It is not changed.
        catalog: The mappings to use.
        opset: The requested opset; by default the lowest that supports every operator and these faster mappings.
        newest_opset: The newest opset that every engine supports.
        served_opset: The newest opset of a faster mapping that is preferred to one of an older opset.
        raised: The lowest opset with engine kernels for the nodes of an operator, by target key, from earlier rounds.
        refused: The mappings not to use again (:meth:`Plan.mapping_of`), which failed or whose nodes an engine refused.
        rewrites: The rewrites that were used during the capture, with the lines that used them, for the list of steps.
        whole: The program in which to count the steps, if ``program`` has only its distinct operators.
        kernels: Whether to use the mappings of the catalog to nodes with kernels; never in function bodies.
        inlined: Whether operators of torch.library without a mapping become what their Python functions compute.

    Raises:
        TranslationError: A decomposition of the catalog or of the user fails on this model.
    """
    floor = opset or max((LOWEST_OPSET, *raised.values()))
    mapped = {key: introduced for key, introduced in torch_internals.mapped_targets().items() if key not in refused}
    catalog = with_implementations(catalog, mapped) if inlined else catalog
    newest = opset or newest_opset
    rungs = RUNGS_WITH_KERNELS if kernels else RUNGS
    chosen = _choose(catalog, rungs, refused, mapped, newest, opset or min(newest, max(floor, served_opset)))
    kept = KeptNan(program, catalog.nan)
    recorder = _Recorder(kept)
    translated = {key for key, spec in chosen.items() if spec.is_translation}
    dynamic = dynamic_axes(program, user_inputs(program))
    with under_opaque_aliases(program, translated) as aliases:
        native = {key for key, needs in mapped.items() if needs <= floor}
        users = {key for key, spec in chosen.items() if catalog.provider(spec) == "user"}
        decomposed = _decompose(program, chosen, native, recorder, users)
    _check_dynamic(dynamic, decomposed)
    chosen.update({alias: chosen[key] for alias, key in aliases.items()})
    _normalize(decomposed)
    avoided = {name.partition("@")[0] for name in refused}
    reduce_whole_slices(
        decomposed, lambda old, new: target_key(old) not in users and target_key(new) not in users | avoided
    )
    calls = keep_custom_nodes(decomposed, {key: spec for key, spec in chosen.items() if spec.rung == "function"})
    needs = {key: spec.opset for key, spec in chosen.items() if spec.is_translation}
    missing = find_missing(decomposed, lambda node: _opset_of(node, mapped, needs), opset or newest_opset)
    final, reason = _lowest_opset(decomposed, floor, mapped, needs)
    exact = kept.targets(decomposed)
    bodies = capture_bodies(calls) if calls else None
    of_bodies = dataclasses.replace(catalog, nan=EXACT) if exact.intersection(calls) else catalog
    opsets: dict[str, Any] = {"opset": opset, "newest_opset": newest_opset, "served_opset": served_opset}
    inner = plan(bodies.program, of_bodies, **opsets, raised=raised, refused=refused) if bodies else None
    if inner is not None and inner.opset > final:
        final, reason = inner.opset, dataclasses.replace(inner.opset_reason, in_body=True)
    calls = bodies.calls if bodies else ()
    # A decomposition may apply only to some element types.
    chosen = {key: spec for key, spec in chosen.items() if spec.rung != "decompose" or key in recorder.uses}
    mended = _mended(decomposed, chosen, recorder.uses, aliases)
    return Plan(
        program=_as_decomposed(decomposed),
        opset=final,
        opset_reason=reason or _reason(opset, raised),
        steps=(
            *_rewrite_steps(catalog, rewrites),
            *list_steps(
                whole or program,
                catalog,
                chosen,
                mapped={**mapped, **raised},
                floor=opset or LOWEST_OPSET,
                mended_inside=mended,
                missing=missing,
                ignored=CHECKS,
            ),
        ),
        chosen=chosen,
        translations=_translations(decomposed, chosen, calls, exact),
        bodies=bodies,
        bodies_plan=inner,
        missing=missing + (inner.missing if inner else ()),
        aliases=aliases,
    )


def _reason(opset: int | None, raised: Mapping[str, int]) -> OpsetReason:
    if opset:
        return OpsetReason(OpsetCause.REQUESTED)
    if not raised:
        return OpsetReason(OpsetCause.LOWEST)
    key = max(raised, key=lambda name: raised[name])
    return OpsetReason(OpsetCause.OPERATOR, display_name(key), raised[key])


def _choose(
    catalog: Catalog,
    rungs: Sequence[str],
    refused: frozenset[str],
    mapped: Mapping[Any, int],
    newest: int,
    served: int,
) -> dict[str, OpSpec]:
    """The mapping of the catalog or the user for each torch operator that they name, by target key.

    A mapping that needs an opset above ``newest``, or one of the catalog above ``served``, is chosen only if there is
    no other; for one of the catalog, the mapping of torch.onnx counts too.
    """
    chosen: dict[str, OpSpec] = {}
    for name in {spec.target.partition(".")[0] for spec in catalog.specs if spec.rung not in ("rewrite", "fake")}:
        namespace, _, operator_name = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), operator_name, None)
        for overload_name in packet.overloads() if packet is not None else ():
            overload = getattr(packet, overload_name)
            key = target_key(overload)
            lost = [rung for rung in rungs if f"{key}@{rung}" in refused]
            spec = catalog.find(overload, rungs=rungs, refused=lost)
            of_catalog = spec is not None and catalog.provider(spec) == "catalog"
            if spec is not None and spec.opset > (served if of_catalog else newest):
                others = catalog.find(overload, rungs=rungs, refused=[*lost, spec.rung])
                leaves_to_torch = key in mapped and of_catalog
                spec = others or (None if leaves_to_torch else spec)
            if spec is not None:
                chosen[key] = spec
    return chosen


_DEEPEST = 24  # torch's decomposition of what an engine refuses may lead back to the catalog's, without an end.


class _Recorder:
    """Records the decompositions that were used, and the first that failed."""

    def __init__(self, kept: KeptNan) -> None:
        self._kept = kept
        self._depths = collections.Counter[str]()
        self.uses = Uses()
        self.failure: tuple[str, OpSpec, Exception] | None = None

    def wrap(self, key: str, spec: OpSpec, otherwise: Callable[..., Any] | None) -> Callable[..., Any]:
        """The function of ``spec``, which records each use and the first failure; ``otherwise`` is for other calls."""

        @functools.wraps(spec.function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            meta = torch.fx.traceback.get_current_meta()
            if self._depths[key] == _DEEPEST:
                return NotImplemented
            self._depths[key] += 1
            try:
                with keeping_nan(self._kept.by(meta)):
                    result = spec.function(*args, **kwargs)
            except Exception as error:
                self.uses.note(key, meta)
                self.failure = self.failure or (key, spec, error)
                raise
            finally:
                self._depths[key] -= 1
            if result is NotImplemented and otherwise is not None:
                return otherwise(*args, **kwargs)
            if result is not NotImplemented:
                self.uses.note(key, meta)
            return result

        return recorded


def _decompose(
    program: torch.export.ExportedProgram,
    chosen: Mapping[str, OpSpec],
    native: set[Any],
    recorder: _Recorder,
    users: set[str],
) -> torch.export.ExportedProgram:
    kept = {key for key, spec in chosen.items() if spec.rung != "decompose"}
    try:
        with silenced(), torch_internals.decomposing(program), torch.no_grad():
            # Inside, because the setting changes torch's decompositions of recurrent layers.
            table = torch_internals.decomposition_table(native | kept)
            for key, spec in chosen.items():
                if spec.rung == "decompose":
                    overload = overload_of(key)
                    table[overload] = recorder.wrap(key, spec, table.get(overload))
            return decomposed(program, with_complex_rules(table, native | kept, users))
    except Exception as error:
        if recorder.failure is None:
            line = failing_line(program, error)
            raise TranslationError(
                f"torch can't decompose the captured graph{f' at {line}' if line else ''}: {first_line(error)}",
                fix="write that line in another way; if an operator is named, give it a mapping with "
                "opbridge.decomposition or opbridge.translation.",
                details=str(error),
            ) from error
        key, spec, cause = recorder.failure
        if isinstance(cause, OpbridgeError):
            raise cause from error
        raise TranslationError(
            f"The decomposition of {key} at {spec.source} fails: {described_error(cause)}"
            + "".join(f"\n  used at {place}" for place in recorder.uses.sources(key, 3)),
            fix="correct the function at that place; it is traced, so it must not read a tensor's contents.",
            details=str(cause),
        ) from error


def _normalize(decomposed: torch.export.ExportedProgram) -> None:
    """Change a decomposed program so that the mappings of torch.onnx, which do not see their context, are right."""
    remove_checks(decomposed)
    simplify(decomposed)
    shield_results(decomposed)
    promote_integers_beside_numbers(decomposed)
    without_bit_operations(decomposed)
    compute_sizes_in_float64(decomposed)
    floor_negative_quotients(decomposed)


def _check_dynamic(before: Mapping[str, tuple[int, ...]], decomposed: torch.export.ExportedProgram) -> None:
    """Raise a TranslationError if a dynamic dimension of an input has become a constant in a decomposition."""
    after = dynamic_axes(decomposed, list(before))
    fixed = [f"dimension {axis} of {name}" for name, axes in before.items() for axis in axes if axis not in after[name]]
    if fixed:
        raise TranslationError(
            f"Declared dynamic, but a decomposition of an operator fixes the size: {'; '.join(fixed)}.",
            fix="leave the dimension out of dynamic_shapes, or give the operator that loops over it, such as a "
            "recurrent layer, a mapping of your own with opbridge.decomposition or opbridge.translation.",
        )


def _opset_of(node: torch.fx.Node, mapped: Mapping[Any, int], needs: Mapping[Any, int]) -> int | None:
    """The lowest opset of the mapping of a decomposed node; None if there is no mapping."""
    if isinstance(node.target, CustomCall):
        return LOWEST_OPSET
    key = target_key(node.target)
    if key in needs:
        return needs[key]
    table = torch_internals.mapped_targets(complex_inputs=True) if has_complex_input(node) else mapped
    # torch.onnx itself unpacks multiple outputs.
    return LOWEST_OPSET if key is _GETITEM else table.get(key)


_GETITEM = operator.getitem


def _lowest_opset(
    program: torch.export.ExportedProgram, floor: int, mapped: Mapping[Any, int], needs: Mapping[Any, int]
) -> tuple[int, OpsetReason | None]:
    final, reason = floor, None
    for node in calls_in(program):
        required = _opset_of(node, mapped, needs)
        if required is not None and required > final:
            name = display_name(target_key(node.target))
            final, reason = required, OpsetReason(OpsetCause.OPERATOR, name, required)
    return final, reason


def _rewrite_steps(catalog: Catalog, used: Mapping[str, tuple[str, ...]]) -> list[Step]:
    providers = {spec.target: catalog.provider(spec) for spec in catalog.rewrites()}
    return [
        Step(target, "rewrite", max(1, len(lines)), lines[:5], providers[target], "replaced while capturing")
        for target, lines in used.items()
    ]


def _mended(
    program: torch.export.ExportedProgram, chosen: Mapping[str, OpSpec], uses: Uses, aliases: Mapping[str, str]
) -> Uses:
    """The uses of the mappings of the catalog and the user: decompositions that ran, and translations that will run."""
    for node in calls_in(program):
        key = node.target.target if isinstance(node.target, CustomCall) else target_key(node.target)
        if key in chosen:
            uses.note(aliases.get(key, key), node.meta)
    return uses


def _translations(
    program: torch.export.ExportedProgram,
    chosen: Mapping[str, OpSpec],
    calls: tuple[CustomCall, ...],
    exact: Collection[Any],
) -> dict[Any, Callable[..., Any]]:
    table: dict[Any, Callable[..., Any]] = {call: _unbound(call.emit) for call in calls}
    for target in (*(node.target for node in calls_in(program)), *_ADDED_BY_TORCH_ONNX):
        spec = chosen.get(target_key(target)) if isinstance(target, torch._ops.OpOverload) else None
        if spec is not None and spec.is_translation:
            table[target] = _unbound(spec.function, target in exact)
    return table


_ADDED_BY_TORCH_ONNX = (torch.ops.aten.scalar_tensor.default,)
"""Operators that torch.onnx adds, because it converts numbers to tensors when it promotes types."""


def _unbound(function: Callable[..., Any], keeps_nan: bool = True) -> Callable[..., Any]:
    """A separate function object for torch.onnx, which sets an attribute on it."""

    @functools.wraps(function)
    def translation(*args: Any, **kwargs: Any) -> Any:
        with keeping_nan(keeps_nan):
            return function(*args, **kwargs)

    return translation


def _as_decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    # A number among the outputs is the same for every input; torch.onnx accepts only None for it.
    output = program.graph.output_node()
    output.args = (tuple(value if isinstance(value, torch.fx.Node) else None for value in output.args[0]),)
    program.__class__ = _Decomposed
    return program
