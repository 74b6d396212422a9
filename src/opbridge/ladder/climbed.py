"""The result of the ladder and every broken link, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.ladder.build import Built
    from opbridge.ladder.climb_torch import ClimbedProgram
    from opbridge.ladder.opset_reason import OpsetReason
    from opbridge.ladder.step import Step
    from opbridge.ladder.translate import Translated
    from opbridge.onnx_model.adaptation import Adaptation

__all__ = ["Break", "Climbed", "ClimbedAll", "NoCompiler"]


@dataclasses.dataclass(frozen=True)
class Break:
    """A broken link of one operator.

    Attributes:
        target: The torch operator, "aten::cummax.default"; for a node that no torch operator became, "domain::Op".
        link: "mapping" (2) or "kernel" (3).
        reason: The reason in one line.
        sources: ``file:line`` in the user's model.
        engine: The engine that refuses the operator; empty for link 2.
        node: The ONNX operator that the engine refuses, "ai.onnx::Conv".
        mended: Whether another rung supports the operator.
        opset: The opset that can't express the node, if that is the reason.
    """

    target: str
    link: Literal["mapping", "kernel"]
    reason: str
    sources: tuple[str, ...] = ()
    engine: str = ""
    node: str = ""
    mended: bool = False
    opset: int | None = None


@dataclasses.dataclass(frozen=True)
class NoCompiler:
    """Kernels that are not built because a compiler or a header-only library is missing.

    Attributes:
        reason: What is missing, in a sentence.
        fix: How to install it.
        served: The targets whose nodes run their function bodies.
        lost: The targets that have nodes without a function body.
    """

    reason: str
    fix: str
    served: tuple[str, ...]
    lost: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Climbed:
    """The result of the ladder for the engines that load ONNX.

    Attributes:
        given: The model before it is adapted to engines: the translation, or the ONNX model with its declared bodies.
        models: The model of each engine, by the engine's name.
        adaptations: The changes made for each engine.
        breaks: Every broken link, in the order of discovery.
        steps: The rung of each operator.
        opset: The opset of the engines' models, the highest if they differ.
        opset_reason: What determined the opset.
        built: The library of each engine that has kernels, by the engine's name.
        no_compiler: The kernels that can't be built, if there is no compiler.
        bodied: ``"domain::Op"`` of the custom nodes that were given a declared body.
        translated: The last translation, with the origins of values and nodes; None for an ONNX model.
    """

    given: ir.Model
    models: Mapping[str, ir.Model]
    adaptations: Mapping[str, tuple[Adaptation, ...]]
    breaks: tuple[Break, ...]
    steps: tuple[Step, ...]
    opset: int
    opset_reason: OpsetReason
    built: Mapping[str, Built] = dataclasses.field(default_factory=dict)
    no_compiler: NoCompiler | None = None
    bodied: tuple[str, ...] = ()
    translated: Translated | None = None


@dataclasses.dataclass(frozen=True)
class ClimbedAll:
    """The result of the ladder for all engines.

    Attributes:
        onnx: The result for the engines that load ONNX; None if there is no such engine.
        programs: The result for each engine that takes a torch program, by the engine's name.
    """

    onnx: Climbed | None
    programs: Mapping[str, ClimbedProgram]

    @property
    def breaks(self) -> tuple[Break, ...]:
        """Every broken link of all engines."""
        own = self.onnx.breaks if self.onnx is not None else ()
        return (*own, *(item for program in self.programs.values() for item in program.breaks))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The rung of each operator; those for the engines that load ONNX, if there are any."""
        return self.onnx.steps if self.onnx is not None else next(iter(self.programs.values())).steps

    @property
    def built(self) -> tuple[Built, ...]:
        """The libraries of kernels of all engines."""
        own = self.onnx.built.values() if self.onnx is not None else ()
        return (*own, *(program.built for program in self.programs.values() if program.built is not None))

    @property
    def adaptations(self) -> dict[str, tuple[Adaptation, ...]]:
        """The changes made for each engine, by the engine's name."""
        own = self.onnx.adaptations if self.onnx is not None else {}
        return {**own, **{name: program.adaptations for name, program in self.programs.items()}}
