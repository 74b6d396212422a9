"""Climbs the ladder for an engine that takes a torch program: the engine is queried about each call.

A refused call is replaced by the first of these that exists: the decomposition declared by the user or the catalog, the
body of a custom operator, torch's own decomposition.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch

from opbridge.capture.capture import Captured
from opbridge.capture.specs import specs_of_program
from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines.base import Engine, Refusal
from opbridge.engines.roles import TakesTorchPrograms
from opbridge.engines.torch_program import TorchProgram
from opbridge.errors import BuildError, TranslationError, first_line
from opbridge.kernels.declared import KernelSpec, declared_kernels
from opbridge.ladder.build import Built, build
from opbridge.ladder.climbed import Break
from opbridge.ladder.step import Rung, Step
from opbridge.ladder.unsupported import unsupported_operators
from opbridge.onnx_model.adaptation import Adaptation
from opbridge.torch_graph.checks import CHECKS, remove_checks
from opbridge.torch_graph.decomposed import decomposed
from opbridge.torch_graph.silence import silenced
from opbridge.torch_graph.sources import source_of_stack_trace
from opbridge.torch_graph.targets import calls_in, display_name, functional_target, target_key

__all__ = ["ClimbedProgram", "climb_torch"]

_MOST_ROUNDS = 20
_IN_TORCH = ("decompose", "function")
"""The rungs whose functions consist of torch operators."""


@dataclasses.dataclass(frozen=True)
class ClimbedProgram:
    """The result of the ladder for one engine that takes a torch program.

    Attributes:
        program: The program for the engine to convert.
        steps: The rung of each operator of the captured program.
        breaks: Every broken link, in the order of discovery.
        built: The library of the kernels that the program calls; None without kernels.
    """

    program: TorchProgram
    steps: tuple[Step, ...]
    breaks: tuple[Break, ...]
    built: Built | None = None

    @property
    def adaptations(self) -> tuple[Adaptation, ...]:
        """The decompositions, as changes made for the engine."""
        return tuple(
            Adaptation(f"{item.target.removesuffix('.default')} is decomposed: {item.reason}", (), item.target)
            for item in self.breaks
        )


def climb_torch(
    captured: Captured,
    catalog: Catalog,
    engine: TakesTorchPrograms,
    *,
    dry: bool = False,
    report: Callable[[str], None] = lambda stage: None,
) -> ClimbedProgram:
    """Bring a captured program to an engine.

    Args:
        captured: The captured program.
        catalog: The mappings to use.
        engine: The engine, which is queried about every distinct call.
        dry: Whether to continue after operators for which no rung is left, and to build no kernels.
        report: A callback that receives the name of each stage as it begins.

    Raises:
        UnsupportedOperatorError: No rung is left for some operators (unless dry); all are named.
        TranslationError: A decomposition fails.
        BuildError: A kernel can't be built, and its operator has no body.
    """
    report(f"probing {engine.name}")
    built, kernels = (None, ()) if not engine.takes_kernels else _kernels(captured, catalog, engine, dry)
    climb = _Climb(captured, catalog, engine, kernels, built)
    program = climb.run(dry)
    inputs, outputs = specs_of_program(captured)
    arguments = tuple(
        value
        for value in torch.utils._pytree.tree_leaves((captured.args, captured.kwargs))
        if isinstance(value, torch.Tensor | int)
    )[: len(inputs)]
    operators = () if built is None else built.library.operators
    libraries = () if built is None else (built.library.path,)
    converted = TorchProgram(program, inputs, outputs, arguments, operators, libraries)
    return ClimbedProgram(converted, tuple(climb.steps()), tuple(climb.breaks.values()), built)


def _kernels(
    captured: Captured, catalog: Catalog, engine: Engine, dry: bool
) -> tuple[Built | None, tuple[KernelSpec, ...]]:
    """The kernels of the operators that the program calls, and their library, without kernels that can't be built."""
    called: dict[str, Any] = {_name(node.target): node.target for node in calls_in(captured.program)}
    kernels = tuple(kernel for kernel in declared_kernels() if kernel.target in called)
    if not kernels or dry:
        return None, kernels
    try:
        return build(kernels, engine), kernels
    except BuildError as error:
        bodied = [kernel for kernel in kernels if catalog.find(called[kernel.target], rungs=_IN_TORCH) is not None]
        if error.details or len(bodied) < len(kernels):
            raise
        return None, ()  # Without a compiler, the bodies run.


class _Climb:
    def __init__(
        self,
        captured: Captured,
        catalog: Catalog,
        engine: TakesTorchPrograms,
        kernels: Sequence[KernelSpec],
        built: Built | None,
    ) -> None:
        self.breaks: dict[str, Break] = {}
        self._captured = captured
        self._catalog = catalog
        self._engine = engine
        self._kernels = {kernel.target for kernel in kernels}
        self._built = built
        self._table: dict[Any, Callable[..., Any]] = {}
        self._rungs: dict[str, Rung] = {}

    def run(self, dry: bool) -> torch.export.ExportedProgram:
        """The program that the engine accepts."""
        for node in calls_in(self._captured.program):
            spec = self._catalog.find(node.target) if isinstance(node.target, torch._ops.OpOverload) else None
            if spec is not None and spec.rung == "decompose" and self._catalog.provider(spec) == "user":
                self._mend(node.target)
        for _ in range(_MOST_ROUNDS):
            program = self._decomposed()
            refused = dict(self._refused(program))
            lost = [found for overload, found in refused.items() if not self._mend(overload)]
            for found in refused.values():
                self.breaks.setdefault(found.target, dataclasses.replace(found, mended=found not in lost))
            if not refused or (dry and lost):
                return program
            if lost:
                raise unsupported_operators(lost)
        raise unsupported_operators(list(refused.values()))

    def _refused(self, program: torch.export.ExportedProgram) -> Iterator[tuple[Any, Break]]:
        for node in calls_in(program):
            if not isinstance(node.target, torch._ops.OpOverload) or target_key(node.target) in CHECKS:
                continue
            if _name(node.target) in self._kernels and self._has_variant(node):
                continue
            refusal = self._engine.supports_call(node)
            if refusal is not None:
                yield node.target, self._break(node, refusal)

    def _has_variant(self, node: torch.fx.Node) -> bool:
        """Whether the operator's kernel supports a call's element types; in a dry run this is not known."""
        if self._built is None:
            return True
        operator = self._built.library.operator(_name(node.target))
        schema: Any = node.target._schema  # type: ignore[union-attr]
        given = {argument.name: value for argument, value in zip(schema.arguments, node.args, strict=False)}
        given.update(node.kwargs)
        values = [given.get(argument.name) for argument in operator.inputs]
        tensors = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
        return operator.find_variant([_dtype(item) for item in tensors]) is not None

    def _break(self, node: torch.fx.Node, refusal: Refusal) -> Break:
        source = source_of_stack_trace(node.meta.get("stack_trace") or "")
        places = (str(source),) if source is not None else ()
        key = str(target_key(node.target))
        return Break(key, "kernel", refusal.reason, places, self._engine.name, refusal.operator)

    def _mend(self, overload: Any) -> bool:
        """Decompose an operator from now on; False if there is no further decomposition."""
        if overload in self._table:
            return False
        spec = self._catalog.find(overload, rungs=_IN_TORCH)
        standard = torch.export.default_decompositions().get(overload)
        if spec is not None:
            # The declared operator itself would call the operator again.
            body = getattr(spec.function, "body", spec.function)
            self._table[overload] = _with_fallback(body, standard)
            self._rungs[str(target_key(overload))] = cast("Rung", spec.rung)
        elif standard is not None:
            self._table[overload] = standard
            self._rungs[str(target_key(overload))] = "decompose"
        return overload in self._table

    def _decomposed(self) -> torch.export.ExportedProgram:
        try:
            with silenced(), torch.no_grad():
                program = decomposed(self._captured.program, self._table)
        except Exception as error:
            names = ", ".join(display_name(key) for key in self._rungs) or "none"
            raise TranslationError(
                f"torch can't decompose the captured graph for {self._engine.name}: {first_line(error)}",
                fix=f"correct the decomposition that fails; those in force are of: {names}.",
                details=str(error),
            ) from error
        remove_checks(program)
        return program

    def steps(self) -> Iterator[Step]:
        """One step per distinct operator of the captured program."""
        nodes: dict[str, list[torch.fx.Node]] = {}
        for node in calls_in(self._captured.program):
            key = target_key(functional_target(node.target))
            if isinstance(node.target, torch._ops.OpOverload) and key not in CHECKS:
                nodes.setdefault(str(key), []).append(node)
        for key, uses in nodes.items():
            found = self.breaks.get(key)
            sources = [source_of_stack_trace(node.meta.get("stack_trace") or "") for node in uses]
            places = tuple(dict.fromkeys(str(source) for source in sources if source is not None))[:5]
            rung, provider = self._rung(key, functional_target(uses[0].target), found)
            detail = found.reason if found is not None else ""
            yield Step(display_name(key), rung, len(uses), places, provider, detail)

    def _rung(self, key: str, overload: Any, found: Break | None) -> tuple[Rung, str]:
        """The rung of an operator, and the provider of its mapping."""
        if found is not None and not found.mended:
            return "missing", ""
        if _name(overload) in self._kernels and key not in self._rungs:
            spec = self._catalog.find(overload, rungs=("function",))
            return "kernel", self._catalog.provider(spec) if spec is not None else "user"
        spec = self._catalog.find(overload, rungs=_IN_TORCH)
        rung = self._rungs.get(key, "native")
        return rung, self._catalog.provider(spec) if spec is not None and rung == spec.rung else "torch"


def _with_fallback(function: Callable[..., Any], otherwise: Callable[..., Any] | None) -> Callable[..., Any]:
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return otherwise(*args, **kwargs) if result is NotImplemented and otherwise is not None else result

    return decomposed


def _dtype(value: Any) -> str | None:
    tensor = value.meta.get("val") if isinstance(value, torch.fx.Node) else None
    return str(tensor.dtype).removeprefix("torch.") if isinstance(tensor, torch.Tensor) else None


def _name(target: Any) -> str:
    """``"namespace::name"``, without the overload."""
    return str(target_key(target)).partition(".")[0]
