"""The installed packages ncnn and pnnx: the only place that imports the one and looks for the other."""

from __future__ import annotations

import functools
import importlib.util
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from opbridge.engines.importing import import_engine
from opbridge.errors import EngineNotInstalledError

__all__ = ["converter", "knows_layer", "runtime", "version"]

_INSTALL = 'pip install "opbridge[ncnn]"'


@functools.cache
def runtime() -> Any:
    """The ``ncnn`` module.

    Raises:
        EngineNotInstalledError: It is not installed, or can't be imported.
    """
    return import_engine("ncnn", has="Net", package="ncnn", install=_INSTALL)


def version() -> str:
    """The version of ncnn. Raises EngineNotInstalledError when there is none."""
    runtime()
    return metadata.version("ncnn")


@functools.cache
def converter() -> Path:
    """The program pnnx. It is run, and its Python package never imported: that would import torch.

    Raises:
        EngineNotInstalledError: It is not installed. A bundle runs without it; exporting and probing need it.
    """
    spec = importlib.util.find_spec("pnnx")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    name = "pnnx.exe" if sys.platform == "win32" else "pnnx"
    for place in places:
        if (Path(place) / name).is_file():
            return Path(place) / name
    raise EngineNotInstalledError("pnnx, which makes ncnn's models, is not installed.", fix=_INSTALL)


@functools.cache
def knows_layer(kind: str) -> bool:
    """Whether the installed ncnn has a layer of this name."""
    # A name alone says little: the table of names has layers that the build leaves out.
    return runtime().layer_to_index(kind) >= 0 and runtime().create_layer(kind) is not None
