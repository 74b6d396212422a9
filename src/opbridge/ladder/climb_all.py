"""The ladder for several engines: once for those that load ONNX, and once for each of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opbridge.capture.capture import Captured
from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines.base import Engine
from opbridge.engines.roles import TakesTorchPrograms
from opbridge.engines.versions import Versions
from opbridge.ladder.climb import climb
from opbridge.ladder.climb_torch import ClimbedProgram, climb_torch
from opbridge.ladder.climbed import Climbed

__all__ = ["climb_all"]


def climb_all(
    captured: Captured,
    catalog: Catalog,
    engines: Sequence[Engine],
    asked: Versions,
    report: Callable[[str], None],
) -> tuple[Climbed | None, dict[str, ClimbedProgram]]:
    """Where the ladder ends for the engines that load ONNX, if there are such, and for each of the others."""
    loading_onnx = [engine for engine in engines if not isinstance(engine, TakesTorchPrograms)]
    programs = {
        engine.name: climb_torch(captured, catalog, engine, report=report)
        for engine in engines
        if isinstance(engine, TakesTorchPrograms)
    }
    if not loading_onnx:
        return None, programs
    climbed = climb(
        captured.program,
        catalog,
        loading_onnx,
        captured=captured,
        opset=asked.opset,
        rewrites=captured.rewrites,
        ir_version=asked.ir_version,
        report=report,
    )
    return climbed, programs
