"""Finds the smallest part of a captured program that can't be exported."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from opbridge import engines
from opbridge.atomic import TemporaryFolder
from opbridge.capture.capture import capture
from opbridge.capture.entry import Entry, load_entry
from opbridge.catalog.declare.catalog import Catalog, Ops
from opbridge.engines.base import Engine
from opbridge.errors import CaptureError, OpbridgeError, TranslationError
from opbridge.ladder.climb import climb_all
from opbridge.proof.compare.sides import ModelSide, model_side
from opbridge.proof.compare.torch_sides import captured_entry
from opbridge.proof.reduce.calls import CallPart, Calls
from opbridge.proof.reduce.minimise import minimise
from opbridge.proof.reduce.modules import reduce_capture
from opbridge.proof.reduce.output import SCRIPT, runs_and_fails, write_folder
from opbridge.proof.reduce.result import Reduction
from opbridge.proof.reduce.torch_script import export_scripts
from opbridge.proof.reduce.trials import Clock

__all__ = ["exported_or_reduced"]

_SCRIPT_SECONDS = 300.0
"""The time limit of an export script. It is long because importing PyTorch is slow on a busy machine."""


def exported_or_reduced(
    text: str,
    engine_name: str,
    bundle: Path,
    path: Path,
    ops: Ops,
    clock: Clock,
    started: float,
    progress: Callable[[str], None],
    export: Callable[..., Any],
) -> ModelSide | Reduction:
    """Export an entry; if that fails, find the smallest part that fails in the same way.

    Args:
        text: The entry.
        engine_name: The engine.
        bundle: The folder to export to.
        path: The folder for the reduced model.
        ops: The ``ops`` argument of ``export``.
        clock: The time limit of the search.
        started: The time at which the reduction began.
        progress: A callback that receives the name of each stage.
        export: :func:`opbridge.export`.

    Raises:
        CaptureError: torch.export can't capture the entry, and the entry is not in a file.
    """
    (engine,) = engines.chosen([engine_name], progress)
    entry, catalog = load_entry(text), Catalog.load(ops)
    try:
        error = _export(entry, engine, bundle, ops, progress, export)
    except CaptureError as failed:
        return reduce_capture(entry, catalog, failed, path, clock, started)
    if error is None:
        return model_side(bundle, engine.name, text=text)
    calls = Calls(captured_entry(entry, catalog))
    exporter = _Exporter(engine, catalog, clock)
    return _written(path, _smallest(calls, error, exporter), error, exporter, len(calls.nodes), started)


def _export(
    entry: Entry,
    engine: Engine,
    bundle: Path,
    ops: Ops,
    progress: Callable[[str], None],
    export: Callable[..., Any],
) -> OpbridgeError | None:
    """Export the entry. Returns the error of an operator that can't be exported; other errors are raised."""
    try:
        export(
            entry.model,
            entry.args,
            entry.kwargs,
            path=bundle,
            engines=[engine.name],
            dynamic_shapes=entry.dynamic_shapes,
            input_names=entry.input_names,
            output_names=entry.output_names,
            verify=False,
            ops=ops,
            progress=progress,
        )
    except TranslationError as error:
        return error
    return None


@dataclasses.dataclass(frozen=True)
class _Exporter:
    """Tries to export programs for an engine."""

    engine: Engine
    catalog: Catalog
    clock: Clock

    def error(self, part: CallPart | None) -> OpbridgeError | None:
        """The error of exporting a part; None if it can be exported or can't be captured."""
        if part is None or self.clock.is_over:
            return None
        self.clock.tick(f"{len(part.calls)} calls")
        try:
            captured = capture(part.module, part.args)
        except OpbridgeError:
            return None
        try:
            climb_all(captured, self.catalog, [self.engine])
        except TranslationError as error:
            return error
        except OpbridgeError:
            return None
        return None


def _smallest(calls: Calls, error: OpbridgeError, exporter: _Exporter) -> CallPart:
    """The smallest failing part that was found."""
    best: list[CallPart] = []

    def fails(nodes: Sequence[torch.fx.Node]) -> bool:
        part = calls.part(nodes)
        same = _is_same(error, exporter.error(part))
        if same and part is not None:
            best[:] = [part]
        return same

    named = [node for node in calls.nodes if _target(node) in _targets(error)]
    if any(fails([node]) for node in named):
        return best[0]
    if not fails(calls.nodes):
        raise _not_reduced(error)
    minimise(calls.nodes, fails)
    return best[0]


def _not_reduced(error: OpbridgeError) -> OpbridgeError:
    error.fix = (
        f"{error.fix} The model could not be reduced: the captured program alone, with fixed sizes, can be exported, "
        "or the time limit was reached."
    )
    return error


def _target(node: torch.fx.Node) -> str:
    """The operator of a call, as ``"ns::name"``."""
    return node.target.name().partition(".")[0] if isinstance(node.target, torch._ops.OpOverload) else ""


def _targets(error: OpbridgeError | None) -> set[str]:
    """The operators that an error names, as ``"ns::name"``."""
    found = [*getattr(error, "targets", ()), getattr(error, "target", None)]
    return {str(target).partition(".")[0] for target in found if target}


def _is_same(error: OpbridgeError, other: OpbridgeError | None) -> bool:
    """Whether two errors are of the same kind and, if they name operators, name a common one."""
    if other is None or type(other) is not type(error):
        return False
    return not _targets(error) or bool(_targets(error) & _targets(other))


def _written(
    path: Path, part: CallPart, error: OpbridgeError, exporter: _Exporter, before: int, started: float
) -> Reduction:
    """Write the first script that reproduces the fault, or the last one if none does."""
    message = " ".join(line.strip() for line in error.message.splitlines()[:2])
    tried: dict[str, Any] = {}
    for text in export_scripts(part, message, exporter.engine):
        shows = _shows(text)
        tried = {"text": text, "shows": shows}
        if shows:
            break

    def fill(folder: Path) -> None:
        (folder / SCRIPT).write_text(tried["text"], encoding="utf-8")

    files = write_folder(path, fill)
    return Reduction(
        folder=path,
        kind="export",
        message=message,
        engine=f"{exporter.engine.name} {exporter.engine.version}",
        nodes=len(part.calls),
        nodes_before=before,
        operators=tuple(dict.fromkeys(_target(node) or str(node.target) for node in part.calls)),
        tries=exporter.clock.tries,
        seconds=time.monotonic() - started,
        finished=not exporter.clock.is_over,
        reproduces=tried["shows"],
        files=files,
    )


def _shows(text: str) -> bool:
    """Whether a script reproduces the fault."""
    with TemporaryFolder() as folder:
        script = Path(folder) / SCRIPT
        script.write_text(text, encoding="utf-8")
        return runs_and_fails(Path(sys.executable), script, seconds=_SCRIPT_SECONDS)
