"""Imports an engine's package, and says what is wrong where that fails."""

from __future__ import annotations

import importlib
from typing import Any

from opbridge.errors import EngineNotInstalledError

__all__ = ["import_engine"]


def import_engine(module: str, *further: str, has: str, package: str, install: str) -> Any:
    """The module of that name.

    Args:
        module: The package's module.
        further: Submodules that are imported with it.
        has: What its present interface has.
        package: The distribution that ``pip install`` takes.
        install: The command that installs it for opbridge.

    Raises:
        EngineNotInstalledError: It is not installed, can't be imported, or is older than its present interface.
    """
    try:
        found = importlib.import_module(module)
        if hasattr(found, has):
            for name in further:
                importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise EngineNotInstalledError(
                f"{package} is installed, but lacks the module {error.name!r}.", fix=f"pip install {error.name}"
            ) from error
        raise EngineNotInstalledError(f"{package} is not installed.", fix=install) from error
    except (ImportError, OSError, AttributeError) as error:
        raise EngineNotInstalledError(
            f"{package} is installed, but can't be imported: {error}", fix=f"pip install --force-reinstall {package}"
        ) from error
    if not hasattr(found, has):
        raise EngineNotInstalledError(
            f"{package} is too old, or another folder of that name is imported instead: it has no {has}.", fix=install
        )
    return found
