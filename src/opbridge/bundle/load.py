"""Loads a bundle or a model file in an engine; requires only NumPy and the engine."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from opbridge import engines
from opbridge.bundle.bundle import Bundle, read_bundle
from opbridge.bundle.checks import MANIFEST
from opbridge.bundle.trust import Consent, Trust
from opbridge.engines.base import Engine, Session
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.errors import InputError
from opbridge.kernels.binary import own_platform
from opbridge.kernels.replaced import unless_replaced

__all__ = ["Loadable", "check_model", "load", "loadable"]


@dataclasses.dataclass(frozen=True)
class Loadable:
    """What an engine loads, checked.

    Attributes:
        engine: The engine.
        file: The model file.
        libraries: The libraries of kernels.
        note: Why the kernels of the bundle are not among them; empty if they are, or if there are none.
    """

    engine: Engine
    file: Path
    libraries: tuple[Path, ...]
    note: str = ""

    def load(
        self, *, threads: int | None = None, providers: Sequence[str] | None = None, isolated: bool = False
    ) -> Session:
        """Load the model; see :func:`load`."""
        if isolated:
            return IsolatedSession(self.engine.name, self.file, threads, providers=providers, libraries=self.libraries)
        libraries = [unless_replaced(library) for library in self.libraries]
        return self.engine.load(self.file, threads=threads, providers=providers, libraries=libraries)


def load(
    path: str | os.PathLike[str],
    engine: str = "onnxruntime",
    *,
    threads: int | None = None,
    providers: Sequence[str] | None = None,
    libraries: Sequence[str | os.PathLike[str]] = (),
    kernels: bool = True,
    isolated: bool = False,
    trust: Consent = False,
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
        trust: Whether you trust whoever made the bundle, or the public key (a PEM file) that it must be signed with.
            Without it, the compiled kernels of a bundle run only if you exported it on this machine; otherwise its
            function bodies run, and a warning says so.

    Returns:
        A session: ``.inputs``, ``.outputs``, ``.run({name: array}) -> {name: array}``, ``session(*arrays) -> tuple``,
        ``.close()``.

    Raises:
        InputError: The path, the engine's name or an option is wrong; the bundle or file is truncated or invalid; or it
            can run only as machine code from somebody else, without ``trust``.
        EngineNotInstalledError: The engine's package is missing.
        EngineCrashError: With ``isolated``, the engine crashes, hangs, or runs out of memory while it loads the model.
        EngineError: The engine refuses the model.
    """
    found = loadable(path, engine, libraries=libraries, kernels=kernels, trust=trust)
    if found.note:
        warnings.warn(found.note, stacklevel=2)
    return found.load(threads=threads, providers=providers, isolated=isolated)


def loadable(
    path: str | os.PathLike[str],
    engine: str,
    *,
    libraries: Sequence[str | os.PathLike[str]] = (),
    kernels: bool = True,
    trust: Consent = False,
) -> Loadable:
    """Check a bundle or a model file, and return what the engine loads; see :func:`load`."""
    chosen = engines.get(engine)
    place = Path(path)
    files = tuple(Path(library) for library in libraries)
    if not place.exists():
        raise InputError(f"There is no bundle or model at {str(place)!r}.", fix="check the path.")
    if not place.is_dir():
        check_model(chosen, place, trust=trust)
        return Loadable(chosen, place, files)
    bundle = read_bundle(place, trust=trust)
    model = bundle.loadable(chosen)
    library, note = _kernels_of(bundle, chosen.name) if kernels else (None, "")
    return Loadable(chosen, model, files if library is None else (*files, library), note)


def check_model(engine: Engine, file: Path, *, trust: Consent = False) -> None:
    """Check that an engine can load a model file which is not loaded as a part of a bundle.

    Raises:
        InputError: The engine does not load ONNX files, or would run machine code beside the file that is neither in a
            bundle of this user nor trusted.
    """
    if engine.accepts != "onnx":
        raise InputError(
            f"{engine.name} does not load ONNX files like {file.name!r}.",
            fix=f"export a bundle for it: opbridge export ENTRY -o FOLDER --engine {engine.name}",
        )
    native = engine.machine_code(file)
    if not native or trust is True:
        return
    if (file.parent / MANIFEST).exists():
        read_bundle(file.parent, trust=trust).check_machine_code(engine, file)
        return
    raise InputError(
        f"{engine.name} would run {native[0]}, machine code beside the model, and nothing says who made it.",
        fix=f"copy {file.name} into a folder of its own, or, if you trust whoever made {native[0].name}, pass --trust "
        "(in Python: trust=True).",
    )


def _kernels_of(bundle: Bundle, engine: str) -> tuple[Path | None, str]:
    """The bundle's library of kernels for this machine, or why the function bodies run instead."""
    built = bundle.kernels(engine)
    if built is None:
        return None, ""
    if bundle.trust is Trust.NONE:
        bundle.runs(engine)  # This raises the error if there are no function bodies.
        return None, (
            f"{bundle.path} was not made by you on this machine, so its kernels, which are machine code, are not used: "
            "the slower function bodies run instead. If you trust whoever made it, pass --trust (in Python: "
            "trust=True)."
        )
    if built["platform"] != own_platform() and built["optional"]:
        return None, (
            f"The kernels of {bundle.path} were built for {built['platform']}, and this is {own_platform()}: the "
            "slower function bodies run instead. Build them here with cmake from its folder 'kernels', and pass the "
            "library as libraries=[...]."
        )
    return bundle.path / str(built["file"]), ""
