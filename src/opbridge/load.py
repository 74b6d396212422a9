"""Open a bundle, or a model file, in an engine. Needs NumPy and the engine only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from opbridge import engines
from opbridge.engines.base import Session
from opbridge.errors import InputError

__all__ = ["load"]


def load(
    path: str | os.PathLike[str],
    engine: str = "onnxruntime",
    *,
    threads: int | None = None,
    providers: Sequence[str] | None = None,
    libraries: Sequence[str | os.PathLike[str]] = (),
) -> Session:
    """Load a bundle or an ``.onnx`` file in an inference engine, in this process.

    The files of a bundle are checked against their hashes first.

    Args:
        path: The folder of a bundle, or a model file.
        engine: An engine's name, as in ``opbridge.engines.names()``.
        threads: Threads per operator; the engine's default is one per core.
        providers: The engine's execution providers in order of preference; the default is its CPU.
        libraries: Libraries of kernels, built with the engine's adapter.

    Returns:
        A session: ``.inputs``, ``.outputs``, ``.run({name: array}) -> {name: array}``, ``session(*arrays) -> tuple``.

    Raises:
        InputError: The path, the engine's name or an option is wrong; the bundle or file is truncated or no ONNX.
        EngineNotInstalledError: The engine's package is missing.
        EngineError: The engine refuses the model.
    """
    chosen = engines.get(engine)
    place = Path(path)
    if not place.exists():
        raise InputError(f"There is no bundle or model at {str(place)!r}.", fix="check the path.")
    if place.is_dir():
        from opbridge.bundle import read_bundle

        place = read_bundle(place).model_file(engine)
    elif chosen.accepts != "onnx":
        raise InputError(
            f"{engine} does not load ONNX files like {place.name!r}.",
            fix=f"export a bundle for it: opbridge export ENTRY -o FOLDER --engine {engine}",
        )
    return chosen.load(place, threads=threads, providers=providers, libraries=[Path(library) for library in libraries])
