"""Runs a script with the bridge on and its migrated source without it, and compares the models that both export."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from opbridge.engines.process.isolation import child_environment
from opbridge.legacy.migrate.migration import Change, Migration
from opbridge.legacy.migrate.same_nodes import difference

__all__ = ["checked", "unchecked"]

_SECONDS = 600


@dataclasses.dataclass(frozen=True)
class _Run:
    """The models of one run, the old declarations that it used, and the last line of its error output if it failed."""

    models: tuple[ir.Model, ...]
    used: frozenset[str]
    error: str


def checked(migration: Migration, arguments: Sequence[str] = ()) -> Migration:
    """Run a script and its migrated source, each in a child process in an empty folder, and compare their models.

    Args:
        migration: The migration of the script.
        arguments: The command-line arguments of the script.

    Returns:
        The migration. Its ``converted`` has only what was run and exported the same nodes as the bridge, and
        ``not_run`` the rest.
    """
    with tempfile.TemporaryDirectory(prefix="opbridge-") as folder:
        old = _run(Path(folder) / "old", migration, None, arguments)
        if old.error or not old.models:
            fails = f"it fails in an empty folder: {old.error}" if old.error else "it exports no model"
            return unchecked(migration, f"the script was run with the bridge on, and {fails}")
        new = _run(Path(folder) / "new", migration, migration.text, arguments)
        problem = new.error or _difference(old, new)
    if problem:
        return dataclasses.replace(unchecked(migration, "the new source is not right"), problem=problem)
    not_run = tuple(item for item in migration.converted if _is_declaration(item) and not _is_used(item, old))
    converted = tuple(item for item in migration.converted if item not in not_run)
    reason = "no exported model calls it" if not_run else ""
    return dataclasses.replace(migration, converted=converted, not_run=not_run, reason=reason)


def unchecked(migration: Migration, reason: str) -> Migration:
    """Return a migration of which nothing was run."""
    return dataclasses.replace(migration, converted=(), not_run=migration.converted, reason=reason)


def _run(folder: Path, migration: Migration, source: str | None, arguments: Sequence[str]) -> _Run:
    work = folder / "work"
    work.mkdir(parents=True)
    script = Path(migration.file).absolute()
    request = {"script": str(script), "source": source, "arguments": list(arguments), "folder": str(folder)}
    command = [sys.executable, "-P", "-m", "opbridge.legacy.migrate.child", json.dumps(request)]
    try:
        done = subprocess.run(
            command, cwd=work, env=child_environment(), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return _Run((), frozenset(), f"it runs longer than {_SECONDS} seconds")
    if done.returncode != 0:
        return _Run((), frozenset(), _last_error(done.stderr) or f"it ends with exit code {done.returncode}")
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    models = tuple(ir.load(folder / f"{number}.onnx") for number in range(result["models"]))
    return _Run(models, frozenset(item["name"] for item in result["used"]), "")


_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Failure): \S")


def _last_error(text: str) -> str:
    """Return the last line that names an exception: torch's messages go on after it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next(filter(_ERROR.match, reversed(lines)), lines[-1] if lines else "")


def _difference(old: _Run, new: _Run) -> str:
    if len(old.models) != len(new.models):
        return f"it exports {len(new.models)} models, not {len(old.models)}"
    for number, (mine, theirs) in enumerate(zip(old.models, new.models, strict=True), 1):
        found = difference(mine, theirs)
        if found:
            return f"model {number}: {found}"
    return ""


def _is_declaration(change: Change) -> bool:
    return change.name.endswith(".symbolic") or "::" in change.name


def _is_used(change: Change, run: _Run) -> bool:
    return change.name.removesuffix(".symbolic") in run.used
