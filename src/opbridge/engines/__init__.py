"""The inference engines: one folder each, discovered by listing this package, so that a new engine edits no list.

The name of a folder, such as "onnxruntime", is the engine installed here. "onnxruntime==1.16.3" is that version in an
environment of its own, which is created on first use.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path

from opbridge.engines.base import Engine
from opbridge.errors import InputError

__all__ = ["chosen", "family_of", "get", "names", "needs_installing", "place_of"]


def names() -> list[str]:
    """The engines that opbridge knows, installed here or not, sorted. Imports none of them."""
    return sorted(name for name in _folders() if not name.startswith("_"))


_SHARED = ("passes", "process")
"""The subpackages that are not engines: what all engines share."""


def _folders() -> list[str]:
    """The engines' folders, including internal ones, whose names begin with ``_``."""
    return [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg and module.name not in _SHARED]


def family_of(name: str) -> str:
    """The name without a version: "onnxruntime" of "onnxruntime==1.16.3"."""
    return name.partition("==")[0].strip()


@functools.cache
def get(name: str) -> Engine:
    """The engine of this name; the same object every time, since it caches its answers.

    Args:
        name: The engine installed here ("onnxruntime"), or one version of it in an environment of its own
            ("onnxruntime==1.16.3"; "onnxruntime==1.16" is the newest 1.16.x). The environment is made by pip, once.

    Raises:
        InputError: There is no engine of this name, or pip offers no such version. An engine that is not installed is
            not an error until it is used.
        EngineError: The environment can't be made.
    """
    if name == "none":
        return get("_none")
    family, _, version = name.partition("==")
    known = names()
    if family.strip() not in _folders():
        close = difflib.get_close_matches(family, known, n=1)
        raise InputError(
            f"There is no engine {name!r}. opbridge knows: {', '.join(known)}.",
            fix=f"did you mean {close[0]!r}?" if close else f"use one of: {', '.join(known)}.",
        )
    engine_class: type[Engine] = importlib.import_module(f"{__name__}.{family.strip()}").ENGINE
    if "==" not in name:
        return engine_class()
    from opbridge.engines.roles import InEnvironments

    if not issubclass(engine_class, InEnvironments):
        raise InputError(
            f"opbridge can ask only the installed {family}, not {name!r}.",
            fix=f"install that version, and write --engine {family}.",
        )
    from opbridge.engines.environments import engine_environment

    environment = engine_environment(engine_class.package, version.strip())
    exact = f"{family.strip()}=={environment.version}"
    return engine_class.in_environment(environment) if exact == name else get(exact)


def place_of(name: str) -> tuple[str, Path | None]:
    """The engine's name in the Python environment that has it, and the interpreter there (None for this process's)."""
    from opbridge.engines.roles import InEnvironments

    engine = get(name) if "==" in name else None
    return (family_of(name), engine.python) if isinstance(engine, InEnvironments) else (name, None)


def needs_installing(name: str) -> bool:
    """Whether the first use of this engine creates an environment, which takes a while."""
    from opbridge.engines.environments import is_cached

    family, separator, version = name.partition("==")
    return bool(separator) and family in names() and not is_cached(get(family).package, version)


def chosen(names: Sequence[str], progress: Callable[[str], None]) -> list[Engine]:
    """The engines of these names, each installed. An environment for another version is created if needed.

    Without a name, or for "none", it is the engine that takes every node and runs none.
    """
    if isinstance(names, str):
        names = names.split(",")
    names = names or ("none",)
    if "none" in names and len(names) > 1:
        raise InputError("Engine 'none' was named beside others.", fix="name it alone, or leave it out.")
    for name in names:
        if needs_installing(name):
            progress(f"installing {name}")
    engines = list({engine.name: engine for engine in map(get, names)}.values())
    for engine in engines:
        engine.version  # noqa: B018 - raises EngineNotInstalledError before any work is done
    return engines
