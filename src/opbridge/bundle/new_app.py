"""``opbridge new-app``: writes a C++ program that runs a bundle without Python."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import string
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from opbridge import engines
from opbridge.atomic import check_new_folder, files_below, replace_folder, reported, temporary_sibling
from opbridge.bundle.bundle import Bundle, read_bundle
from opbridge.bundle.load import loadable
from opbridge.bundle.trust import Consent
from opbridge.engines.base import Engine, TensorSpec
from opbridge.errors import InputError
from opbridge.kernels.compiler import HEADERS
from opbridge.kernels.sources import source_files
from opbridge.records import Record

__all__ = ["App", "new_app"]

_SHARED = Path(__file__).with_name("program")


@dataclasses.dataclass(frozen=True)
class App(Record):
    """A program's files.

    Attributes:
        engine: The engine that the program uses.
        files: The written files.
        commands: The commands that build and run it.
        note: Why the bundle's kernels are not used; empty if they are, or if there are none.
    """

    engine: str
    files: tuple[Path, ...]
    commands: tuple[str, ...]
    note: str


def new_app(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    engine: str | None = None,
    trust: Consent = False,
) -> App:
    """Write a C++ program that runs a bundle in an engine, with a CMake project.

    Args:
        path: The folder of the bundle.
        folder: The new folder of the program.
        engine: The engine; the first engine of the bundle for which there is a program by default.
        trust: As for :func:`opbridge.load`.

    Raises:
        InputError: There is no program for the engine, the bundle has no model for it or a value that a .npy file can't
            hold, or ``folder`` exists.
    """
    bundle = read_bundle(path, trust=trust)
    chosen, sources = _engine_of(bundle, engine)
    found = loadable(path, chosen.name, trust=trust)
    check_new_folder(folder)
    values = {
        "engine": chosen.name,
        "model": _text(found.file.relative_to(bundle.path).as_posix()),
        "library": _text(found.libraries[0].relative_to(bundle.path).as_posix() if found.libraries else ""),
        "inputs": _values(bundle.inputs),
        "outputs": _values(bundle.outputs),
    }
    target = Path(folder)
    with temporary_sibling(folder, target) as temporary, reported(folder):
        for file in _files(sources):
            place = temporary / _place(file, sources)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
        template = string.Template((_SHARED / "bundle.h").read_text(encoding="utf-8"))
        (temporary / "bundle.h").write_text(template.substitute(values), encoding="utf-8")
        names = [file.relative_to(temporary) for file in files_below(temporary)]
        replace_folder(temporary, target)
    return App(chosen.name, tuple(target / name for name in names), _commands(bundle, chosen, target), found.note)


def _engine_of(bundle: Bundle, engine: str | None) -> tuple[Engine, Path]:
    names = [engine] if engine is not None else bundle.engines()
    for chosen in map(engines.get, names):
        if chosen.program_sources is not None:
            return chosen, chosen.program_sources
    able = [name for name in engines.names() if engines.get(name).program_sources is not None]
    raise InputError(
        f"There is no C++ program for {', '.join(names)}, only for {', '.join(able)}.",
        fix=f"export the bundle for {able[0]} too, or write the program as docs/engines.md describes.",
    )


def _files(sources: Path) -> Iterable[Path]:
    """The engine's files, those that are the same for every engine, and the files of opbridge that they include."""
    own = [file for file in sorted(sources.iterdir()) if file.suffix != ".txt"]
    included = source_files(own, [_SHARED, sources.parent, HEADERS])
    return [sources / "CMakeLists.txt", HEADERS / "python_package.cmake", *included]


def _place(file: Path, sources: Path) -> Path:
    root = next(root for root in (sources, _SHARED, sources.parent, HEADERS) if file.is_relative_to(root))
    return file.relative_to(root)


def _values(specs: Iterable[TensorSpec]) -> str:
    return ", ".join(f"{{{_text(spec.name)}, {_text(_dtype(spec))}}}" for spec in specs)


def _dtype(spec: TensorSpec) -> str:
    """NumPy's code of a type, as in .npy files."""
    try:
        dtype = np.dtype(spec.dtype)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "biuf":
        raise InputError(
            f"{spec.name!r} is of {spec.dtype}, which .npy files can't hold.",
            fix="convert it to another type in the model.",
        )
    return dtype.str


def _text(value: str) -> str:
    """A string literal of C++, with control characters in octal digits."""
    escaped = value.replace("\\", r"\\").replace('"', r"\"")
    return '"' + "".join(f"\\{ord(c):03o}" if c < " " or c == "\x7f" else c for c in escaped) + '"'


def _commands(bundle: Bundle, engine: Engine, folder: Path) -> tuple[str, ...]:
    build = folder.as_posix() + "/build"
    arrays = [f"{spec.name}={spec.name.replace('/', '_')}.npy" for spec in bundle.inputs]
    return (
        shlex.join(["cmake", "-S", folder.as_posix(), "-B", build, "-DCMAKE_BUILD_TYPE=Release"]),
        shlex.join(["cmake", "--build", build]),
        shlex.join([f"{build}/run_{engine.name}", bundle.path.as_posix(), *arrays]),
    )
