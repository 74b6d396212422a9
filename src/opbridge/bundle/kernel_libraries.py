"""``opbridge build-kernels``: libraries of kernels that any program can register, without a model."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pkgutil
from collections.abc import Sequence
from pathlib import Path

from opbridge import engines as known_engines
from opbridge import vision
from opbridge.atomic import check_new_folder, replace_folder, reported, temporary_sibling
from opbridge.catalog.declare.catalog import Catalog
from opbridge.errors import EngineError, InputError
from opbridge.kernels.declared import KernelSpec, declared_kernels
from opbridge.ladder.build import build, write_libraries
from opbridge.records import Record

__all__ = ["VISION", "Libraries", "build_libraries", "vision_kernels"]

VISION = "vision"
"""The name that stands for the operators of opbridge.vision and those of torchvision."""


@dataclasses.dataclass(frozen=True)
class Libraries(Record):
    """Libraries of kernels and their sources.

    Attributes:
        files: The libraries, one for each engine.
        operators: ``"domain::name"`` of each kernel in them.
        commands: The commands that build the libraries again, on another platform too.
    """

    files: tuple[Path, ...]
    operators: tuple[str, ...]
    commands: tuple[str, ...]


def build_libraries(
    sources: Sequence[str | os.PathLike[str]], folder: str | os.PathLike[str], *, engines: Sequence[str]
) -> Libraries:
    """Compile kernels into one library for each engine, which a program registers before it loads a model.

    Args:
        sources: The files that declare the kernels, or folders of such files; ``"vision"`` for the operators of
            opbridge.vision and those of torchvision.
        folder: The new folder, for the libraries, their sources and a CMakeLists.txt.
        engines: The engines.

    Raises:
        InputError: A file is missing or declares no kernel, or ``folder`` exists.
        EngineError: An engine loads no kernels.
        BuildError: A kernel does not compile, or there is no compiler.
    """
    check_new_folder(folder)
    chosen = [known_engines.get(name) for name in engines]
    for engine in chosen:
        if not engine.takes_kernels:
            raise EngineError(
                f"{engine.name} loads no kernels of opbridge's.", fix="name other engines; opbridge engines lists them."
            )
    Catalog.load([Path(source) for source in sources if source != VISION])
    kernels = {kernel.target: kernel for source in sources for kernel in _kernels_of(source)}
    libraries = [build(list(kernels.values()), engine) for engine in chosen]
    target = Path(folder)
    with temporary_sibling(folder, target) as temporary, reported(folder):
        write_libraries(libraries, temporary)
        replace_folder(temporary / "kernels", target)
    names = dict.fromkeys(Path(built.file).name for built in libraries)
    commands = (
        f"cmake -S {target} -B {target / 'build'} -DCMAKE_BUILD_TYPE=Release",
        f"cmake --build {target / 'build'}",
    )
    return Libraries(tuple(target / name for name in names), tuple(sorted(kernels)), commands)


def vision_kernels() -> list[KernelSpec]:
    """The kernels of opbridge.vision's operators and, once the catalog is loaded, of torchvision's."""
    for info in pkgutil.iter_modules(vision.ops.__path__):
        importlib.import_module(f"{vision.ops.__name__}.{info.name}")
    return [kernel for kernel in declared_kernels() if kernel.target.startswith(("opbridge_vision::", "torchvision::"))]


def _kernels_of(source: str | os.PathLike[str]) -> list[KernelSpec]:
    if source == VISION:
        return vision_kernels()
    place = Path(os.path.realpath(source))
    found = [k for k in declared_kernels() if Path(k.source.rpartition(":")[0]).resolve().is_relative_to(place)]
    if not found:
        raise InputError(
            f"{os.fspath(source)} declares no kernel.",
            fix=f"name a file that calls .kernel(...) or opbridge.kernel_for, or {VISION!r} for opbridge.vision.",
        )
    return found
