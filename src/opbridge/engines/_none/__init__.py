"""No engine: the ONNX model as the mappings write it, for engines that opbridge does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from opbridge.engines.base import Engine, NotRun, Refusal, Session
from opbridge.errors import EngineError

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["ENGINE", "NoEngine"]

_FIX = "Load model.onnx in your engine; for a verification, export for one that opbridge knows as well."


class NoEngine(Engine):
    """An engine that takes every node, and runs none."""

    name: str = "none"
    package: ClassVar[str] = "onnx"

    @property
    def version(self) -> str:
        """Any."""
        return "any"

    @property
    def newest_opset(self) -> int:
        """The newest opset of the installed onnx."""
        import onnx

        return int(onnx.defs.onnx_opset_version())

    @property
    def not_run(self) -> NotRun:
        """There is no engine to run the model."""
        return NotRun("exported, not run", "The model was exported for no engine, so it was not run.", _FIX)

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        """None: the model stays as it is written."""
        return None

    def load(
        self,
        path: Path,
        *,
        threads: int | None = None,
        providers: Sequence[str] | None = None,
        libraries: Sequence[Path] = (),
    ) -> Session:
        """Raise EngineError."""
        raise EngineError(f"{Path(path).name} was exported for no engine, so opbridge can't run it.", fix=_FIX)


ENGINE = NoEngine
