"""Where the ladder ended, and every broken link met on the way, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.ladder.build import Built
    from opbridge.ladder.plan import Plan
    from opbridge.ladder.translate import Translated
    from opbridge.onnx_model.adaptation import Adaptation

__all__ = ["Break", "Climbed", "NoCompiler"]


@dataclasses.dataclass(frozen=True)
class Break:
    """A broken link of one operator.

    Attributes:
        target: The torch operator, "aten::cummax.default"; for a node of no operator, "domain::Op".
        link: "mapping" (2) or "kernel" (3).
        reason: Why, in a line.
        sources: ``file:line`` in the user's model.
        engine: The engine that refuses it; empty for the mapping.
        node: The ONNX operator that it refuses, "ai.onnx::Conv".
        mended: Whether a further rung mended it.
        opset: The opset that can't express the node, where that is the reason.
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
    """Kernels that are not built, for want of a compiler or of a header-only library.

    Attributes:
        reason: What is missing, in a sentence.
        fix: How to install it.
        served: The targets whose nodes run their function bodies.
        lost: The targets that have nodes without one.
    """

    reason: str
    fix: str
    served: tuple[str, ...]
    lost: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Climbed:
    """Where the ladder ended.

    Attributes:
        plan: The last plan.
        translated: The model before any engine's adaptation.
        models: The model of each engine, by its name.
        adaptations: What was changed for each engine.
        breaks: Every broken link met on the way, in order.
        built: The kernels of each engine that has some, by its name.
        no_compiler: The kernels that are not built, if there is no compiler.
    """

    plan: Plan
    translated: Translated
    models: Mapping[str, ir.Model]
    adaptations: Mapping[str, tuple[Adaptation, ...]]
    breaks: tuple[Break, ...]
    built: Mapping[str, Built] = dataclasses.field(default_factory=dict)
    no_compiler: NoCompiler | None = None
