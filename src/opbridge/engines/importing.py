"""Import an engine's package, and explain a failure."""

from __future__ import annotations

import importlib
from typing import Any

from opbridge.errors import EngineNotInstalledError

__all__ = ["import_engine"]


def import_engine(module: str, *further: str, has: str, package: str, install: str) -> Any:
    """Import a module of an engine's package.

    Args:
        module: The package's module.
        further: Submodules to import with it.
        has: The name of an attribute that a supported version of the module has.
        package: The distribution that ``pip install`` takes.
        install: The command that installs it for opbridge.

    Raises:
        EngineNotInstalledError: The package is not installed, can't be imported, or is too old.
    """
    try:
        found = importlib.import_module(module)
        if hasattr(found, has):
            for name in further:
                importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise EngineNotInstalledError(
                f"{package} is installed, but its module {error.name!r} is missing.",
                fix=f"pip install {error.name}",
            ) from error
        raise EngineNotInstalledError(f"{package} is not installed.", fix=install) from error
    except (ImportError, OSError, AttributeError) as error:
        raise EngineNotInstalledError(
            f"{package} is installed, but can't be imported: {error}", fix=f"pip install --force-reinstall {package}"
        ) from error
    if not hasattr(found, has):
        raise EngineNotInstalledError(
            f"{package} is too old, or another module of that name is imported: it has no {has}.",
            fix=install,
        )
    return found
