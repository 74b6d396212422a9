"""The installed packages: the only module that imports ncnn and that searches for pnnx."""

from __future__ import annotations

import functools
import importlib.util
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from opbridge.engines.importing import import_engine
from opbridge.errors import EngineNotInstalledError

__all__ = ["INSTALL", "converter", "knows_layer", "runtime", "version"]

INSTALL = "pip install --upgrade ncnn pnnx"


@functools.cache
def runtime() -> Any:
    """The ``ncnn`` module.

    Raises:
        EngineNotInstalledError: The package is not installed, or can't be imported.
    """
    return import_engine("ncnn", has="Net", package="ncnn", install=INSTALL)


def version() -> str:
    """The version of ncnn. Raises EngineNotInstalledError if the package is missing."""
    runtime()
    return metadata.version("ncnn")


@functools.cache
def converter() -> Path:
    """The executable of pnnx. Its Python package is never imported, since it imports torch.

    Raises:
        EngineNotInstalledError: pnnx is not installed. Running a bundle does not need it; exporting and probing do.
    """
    spec = importlib.util.find_spec("pnnx")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    name = "pnnx.exe" if sys.platform == "win32" else "pnnx"
    for place in places:
        if (Path(place) / name).is_file():
            return Path(place) / name
    raise EngineNotInstalledError("pnnx, which converts models for ncnn, is not installed.", fix=INSTALL)


@functools.cache
def knows_layer(kind: str) -> bool:
    """Whether the installed ncnn has a layer of this name."""
    # The table of names includes layers that the build leaves out, so the layer is created.
    return runtime().layer_to_index(kind) >= 0 and runtime().create_layer(kind) is not None
