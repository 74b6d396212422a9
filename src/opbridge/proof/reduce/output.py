"""Writes the folder of a reduction, and runs its script once to check that it reproduces the failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from opbridge.atomic import TemporaryFolder, replace_folder, reported, sync_tree, temporary_sibling
from opbridge.engines.roles import InEnvironments
from opbridge.onnx_model.write import save_model
from opbridge.proof.compare.sides import ModelSide
from opbridge.proof.reduce.engine_script import MODEL, engine_script, large_arrays, script_arrays, write_arrays
from opbridge.proof.reduce.problem import Problem
from opbridge.proof.reduce.result import Reduction
from opbridge.proof.reduce.trials import Clock, Tried

__all__ = ["SCRIPT", "runs_and_fails", "write_folder", "written"]

SCRIPT = "reproduce.py"
_HANG_SECONDS = 30.0


def written(
    path: Path,
    side: ModelSide,
    problem: Problem,
    tried: Tried,
    nodes_before: int,
    clock: Clock,
    started: float,
    *,
    fault: str = "",
) -> Reduction:
    """Write the folder for a failure of an engine or a wrong mapping.

    Args:
        path: The folder.
        side: The engine and its kernels.
        problem: The reduced problem.
        tried: The failure of the reduced problem.
        nodes_before: The number of nodes in the whole model.
        clock: The number of runs and the time used.
        started: The time at which the reduction began.
        fault: For a wrong mapping, a sentence that names the operator that the nodes implement.
    """
    assert tried.failure is not None
    kernels = side.libraries if any(node.domain for node in problem.model.graph.all_nodes()) else ()
    text = engine_script(
        problem, tried, side.engine, [file.name for file in kernels], seconds=_HANG_SECONDS, fault=fault
    )

    def fill(folder: Path) -> None:
        save_model(problem.model, folder, name=MODEL)
        (folder / SCRIPT).write_text(text, encoding="utf-8")
        write_arrays(folder, large_arrays(script_arrays(problem, tried)))
        for library in kernels:
            shutil.copyfile(library, folder / library.name)

    files = write_folder(path, fill)
    engine = side.engine
    python = (engine.python if isinstance(engine, InEnvironments) else None) or Path(sys.executable)
    return Reduction(
        folder=path,
        kind=tried.failure.kind if not fault else "mapping",
        message=fault or tried.failure.message,
        engine=f"{side.engine.name} {side.engine.version}",
        nodes=len(problem.nodes),
        nodes_before=nodes_before,
        operators=problem.operators,
        tries=clock.tries,
        seconds=time.monotonic() - started,
        finished=bool(fault) or not clock.is_over,
        reproduces=runs_and_fails(python, path / SCRIPT),
        files=files,
    )


def write_folder(path: Path, fill: Callable[[Path], None]) -> tuple[str, ...]:
    """Create a folder atomically; returns the names of its files."""
    target = Path(os.path.realpath(path))
    with temporary_sibling(path, target) as folder, reported(path):
        fill(folder)
        sync_tree(folder)
        names = tuple(sorted(file.name for file in folder.iterdir()))
        if target.exists():
            target.rmdir()
        replace_folder(folder, target)
    return names


def runs_and_fails(python: Path, script: Path, *, seconds: float = 4 * _HANG_SECONDS) -> bool:
    """Whether the script ends with the exit code of a failure, in a separate process and folder.

    A script that ends with an ImportError, because a package is missing, does not reproduce the failure.
    """
    with TemporaryFolder() as elsewhere:
        try:
            done = subprocess.run(
                [str(python), str(script.resolve())],
                cwd=elsewhere,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    begun = not any(word in done.stderr for word in ("ImportError", "ModuleNotFoundError", "SyntaxError", "NameError"))
    return done.returncode != 0 and begun
