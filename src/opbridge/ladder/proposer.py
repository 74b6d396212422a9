"""The protocol between the ladder's loop and a kind of model: a captured program or an ONNX model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.engines.base import Engine, Refusal
    from opbridge.ladder.adapt import Fitted
    from opbridge.ladder.climbed import Break
    from opbridge.ladder.opset_reason import OpsetReason
    from opbridge.ladder.step import Step
    from opbridge.ladder.translate import Translated
    from opbridge.onnx_model.adaptation import Adaptation

__all__ = ["Attempt", "Proposer"]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A proposed model, and the engines' responses to it.

    Attributes:
        model: The proposed model, with the declared bodies of its custom nodes.
        bodied: ``"domain::Op"`` of the custom nodes that were given a declared body.
        kernels: ``"domain::Op"`` of the nodes that have a kernel that at least one engine loads.
        fitted: The adapted model and the refusals of each engine, by the engine's name.
    """

    model: ir.Model
    bodied: tuple[str, ...]
    kernels: tuple[str, ...]
    fitted: Mapping[str, Fitted]


class Proposer(Protocol):
    """Proposes ONNX models to the engines, and learns from their refusals."""

    @property
    def last_resort(self) -> bool:
        """Whether the next attempt may use the passes that are worse than another mapping or another opset."""

    @property
    def translated(self) -> Translated | None:
        """The last translation; None for an ONNX model."""

    @property
    def adaptations(self) -> tuple[Adaptation, ...]:
        """The changes in the last proposal, which are the same for every engine."""

    def propose(self, report: Callable[[str], None]) -> ir.Model:
        """The next model to try.

        Args:
            report: A callback that receives the name of each stage as it begins.
        """

    def other_opsets(self, engine: Engine, refusals: Sequence[Refusal]) -> Sequence[int]:
        """The opsets to try for an engine that refuses the model in its own opset."""

    def learn(self, attempt: Attempt) -> bool:
        """Record the refusals of an attempt; True if the next proposal may have fewer refusals.

        Raises:
            UnsupportedOperatorError: No rung is left for some operators (not in a dry run); all are named.
        """

    def breaks(self) -> tuple[Break, ...]:
        """Every broken link, in the order of discovery."""

    def steps(self, attempt: Attempt) -> tuple[Step, ...]:
        """The rung of each operator in the last attempt."""

    def opset_reason(self, opset: int, engine: str) -> OpsetReason:
        """Why the model of ``engine``, which has the highest opset of all engines, has this opset."""
