"""Every known engine: its version, what it can do here, and how to install a missing one."""

from __future__ import annotations

import dataclasses
import importlib.util

from opbridge import engines
from opbridge.engines.base import Engine
from opbridge.errors import EngineNotInstalledError, OpbridgeError
from opbridge.records import Record

__all__ = ["KnownEngine", "list_engines"]


@dataclasses.dataclass(frozen=True)
class KnownEngine(Record):
    """An engine that opbridge knows.

    Attributes:
        name: The name that users write.
        version: The installed version; None if it is not installed.
        status: "runs", "built, not run", "exported, not run" (see ``Engine.not_run``), "not installed" or "broken".
        detail: Why the engine does not run models here; empty if it does.
        install: The command that installs the engine.
        runs: Whether the engine runs models here.
        function_bodies: Whether the engine runs a custom operator by its function body.
        kernels: How the engine takes compiled kernels: "C++" (an adapter in the library), "ctypes" (through Python), or
            None.
        python_kernels: How the engine takes kernels written in Python, as for ``kernels``; None also if Numba, which
            compiles them, is missing.
        support_query: Whether the engine answers which nodes it takes, and why not.
        without_python: Whether a bundle, kernels included, runs in a program without Python.
        limits: The abilities of :data:`~opbridge.engines.abilities.ABILITIES` that the engine does not have.
    """

    name: str
    version: str | None
    status: str
    detail: str
    install: str
    runs: bool
    function_bodies: bool
    kernels: str | None
    python_kernels: str | None
    support_query: bool
    without_python: bool
    limits: tuple[str, ...]


def list_engines() -> tuple[KnownEngine, ...]:
    """Every engine that opbridge knows, installed or not, by name."""
    return tuple(_known(engines.get(name)) for name in engines.names())


def _known(engine: Engine) -> KnownEngine:
    try:
        version = engine.version
    except EngineNotInstalledError as error:
        return _unusable(engine, "not installed", error)
    except OpbridgeError as error:
        return _unusable(engine, "broken", error)
    idle, limits = engine.not_run, engine.limits
    kernels = None
    if engine.takes_kernels and "kernels" not in limits:
        kernels = "C++" if engine.kernel_adapter is not None else "ctypes"
    return KnownEngine(
        name=engine.name,
        version=version,
        status="runs" if idle is None else idle.verdict,
        detail="" if idle is None else f"{idle.reason} {idle.fix}",
        install=engine.install,
        runs=idle is None and "runs" not in limits,
        function_bodies="function bodies" not in limits,
        kernels=kernels,
        python_kernels=kernels if importlib.util.find_spec("numba") is not None else None,
        support_query="support query" not in limits,
        without_python="without Python" not in limits,
        limits=tuple(limits),
    )


def _unusable(engine: Engine, status: str, error: OpbridgeError) -> KnownEngine:
    """An engine without its package, which can't be asked what it can do."""
    return KnownEngine(
        engine.name,
        None,
        status,
        error.message,
        error.fix or engine.install,
        False,
        False,
        None,
        None,
        False,
        False,
        (),
    )
