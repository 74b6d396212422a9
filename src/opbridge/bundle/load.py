"""Loads a bundle or a model file in an engine; requires only NumPy and the engine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opbridge import engines
from opbridge.bundle.bundle import read_bundle
from opbridge.engines.base import Session
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.errors import InputError
from opbridge.kernels.binary import own_platform

if TYPE_CHECKING:
    from opbridge.bundle.bundle import Bundle

__all__ = ["load"]


def load(
    path: str | os.PathLike[str],
    engine: str = "onnxruntime",
    *,
    threads: int | None = None,
    providers: Sequence[str] | None = None,
    libraries: Sequence[str | os.PathLike[str]] = (),
    kernels: bool = True,
    isolated: bool = False,
) -> Session:
    """Load a bundle or an ``.onnx`` file in an inference engine, in this process or in a child process.

    The files of a bundle are checked against their hashes first.

    Args:
        path: The folder of a bundle, or a model file.
        engine: An engine's name, as in ``opbridge.engines.names()``; "onnxruntime==1.16.3" is that version, in a
            separate environment and process.
        threads: The number of threads per operator; the engine's default is one per core.
        providers: The engine's execution providers in order of preference; the default is the CPU.
        libraries: Libraries of kernels, built with the engine's adapter, in addition to the bundle's own.
        kernels: Whether to use the bundle's compiled kernels; otherwise the function bodies run.
        isolated: Whether the engine runs in a child process, so that its crash is an EngineCrashError and does not end
            this process. Each run then copies its inputs and outputs.

    Returns:
        A session: ``.inputs``, ``.outputs``, ``.run({name: array}) -> {name: array}``, ``session(*arrays) -> tuple``,
        ``.close()``.

    Raises:
        InputError: The path, the engine's name or an option is wrong; or the bundle or file is truncated or invalid.
        EngineNotInstalledError: The engine's package is missing.
        EngineCrashError: With ``isolated``, the engine crashes, hangs, or runs out of memory while it loads the model.
        EngineError: The engine refuses the model.
    """
    chosen = engines.get(engine)
    place = Path(path)
    if not place.exists():
        raise InputError(f"There is no bundle or model at {str(place)!r}.", fix="check the path.")
    if place.is_dir():
        bundle = read_bundle(place)
        place = bundle.model_file(chosen.name)
        library = _kernels_of(bundle, chosen.name) if kernels else None
        libraries = (*libraries, library) if library is not None else libraries
    elif chosen.accepts != "onnx":
        raise InputError(
            f"{engine} does not load ONNX files like {place.name!r}.",
            fix=f"export a bundle for it: opbridge export ENTRY -o FOLDER --engine {engine}",
        )
    files = [Path(library) for library in libraries]
    if isolated:
        return IsolatedSession(chosen.name, place, threads, providers=providers, libraries=files)
    return chosen.load(place, threads=threads, providers=providers, libraries=files)


def _kernels_of(bundle: Bundle, engine: str) -> Path | None:
    """The bundle's library of kernels for this platform; None if there is none."""
    built = bundle.kernels(engine)
    if built is None:
        return None
    if built["platform"] != own_platform() and built["optional"]:
        warnings.warn(
            f"The kernels of {bundle.path} were built for {built['platform']}, and this is {own_platform()}: the "
            "slower function bodies run instead. Build them here with cmake from its folder 'kernels', and pass the "
            "library as libraries=[...].",
            stacklevel=3,
        )
        return None
    return bundle.path / str(built["file"])
