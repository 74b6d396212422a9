"""Stage 6: ``build`` the kernels of a model into one library per engine, and write the libraries into a bundle."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from opbridge.engines.base import Engine
from opbridge.errors import EngineError, InputError
from opbridge.kernels.adapter_flags import NO_FLAGS, AdapterFlags
from opbridge.kernels.binary import own_platform
from opbridge.kernels.compiler import HEADERS, compile_flags, link_flags
from opbridge.kernels.compiler import build as compile_library
from opbridge.kernels.declared import KernelSpec
from opbridge.kernels.library import KernelLibrary
from opbridge.kernels.sources import source_files

__all__ = ["Built", "build", "write_libraries"]


@dataclasses.dataclass(frozen=True)
class Built:
    """The kernels of a model, compiled for an engine.

    Attributes:
        engine: The engine's name.
        library: A description of the library, which also contains the engine's adapter.
        specs: The kernels in the library.
        adapter: The engine's adapter; None for an engine that calls the kernels' C ABI directly.
        flags: The adapter's compiler flags.
        optional: Whether the engine also accepts the model without the library, and then runs the function bodies.
    """

    engine: str
    library: KernelLibrary
    specs: tuple[KernelSpec, ...]
    adapter: Path | None
    flags: AdapterFlags = NO_FLAGS
    optional: bool = False

    @property
    def targets(self) -> frozenset[str]:
        """``"domain::name"`` of each kernel in the library."""
        return frozenset(operator.target for operator in self.library.operators)

    @property
    def name(self) -> str:
        """The library's name without its suffix. Engines without an adapter share a library."""
        # The engine's name alone would be the name of a Python module.
        return f"{self.engine}_kernels" if self.adapter is not None else "plain_kernels"

    @property
    def file(self) -> str:
        """The library's path in a bundle."""
        return f"kernels/{self.name}{self.library.path.suffix}"

    def write(self, folder: Path) -> None:
        """Write the library into a bundle for this engine only; see :func:`write_libraries`."""
        write_libraries([self], folder)

    def to_dict(self) -> dict[str, Any]:
        """The entry of the library in a manifest."""
        return {
            "engine": self.engine,
            "file": self.file,
            "platform": own_platform(),
            "native": any(spec.native for spec in self.specs),
            "operators": [operator.target for operator in self.library.operators],
            "optional": self.optional,
        }


def build(specs: Sequence[KernelSpec], engine: Engine) -> Built:
    """Compile kernels and the engine's adapter into one library, which is cached by content.

    Raises:
        BuildError: A kernel does not compile, or there is no compiler.
        InputError: A kernel's file does not define the operator that it was declared for.
        EngineError: The engine takes no kernels.
    """
    if not engine.takes_kernels:
        raise EngineError(
            f"{engine.name} takes no kernels of opbridge's.", fix="export for it without kernels: the bodies run."
        )
    adapter, flags = engine.kernel_adapter, engine.adapter_flags
    path = compile_library(
        list(dict.fromkeys(spec.header for spec in specs)),
        adapters=[adapter] if adapter is not None else [],
        adapter_flags=flags,
        native=any(s.native for s in specs),
    )
    library = KernelLibrary(path)
    offered = {operator.target for operator in library.operators}
    for spec in specs:
        if spec.target not in offered:
            raise InputError(
                f"{spec.file.name} has no kernel for {spec.target!r}, for which it is declared at {spec.source}; "
                f"it has: {', '.join(sorted(offered))}.",
                fix="make the name in OPBRIDGE_OPERATOR's schema and the declared one the same.",
            )
    return Built(engine.name, library, tuple(specs), adapter, flags)


def write_libraries(libraries: Iterable[Built], folder: Path) -> None:
    """Write the libraries of all engines into a bundle, with their sources and a CMakeLists.txt for other platforms."""
    distinct = list({built.file: built for built in libraries}.values())
    if not distinct:
        return
    place = folder / "kernels"
    headers = list(dict.fromkeys(spec.header for built in distinct for spec in built.specs))
    _copy_sources(headers, [header.parent for header in headers], place / "src", place / "src")
    for built in distinct:
        shutil.copyfile(built.library.path, folder / built.file)
        if built.adapter is not None:
            _copy_sources([built.adapter], [built.adapter.parent], place / "src", place / "src" / _folder_of(built))
    if any(built.flags.cmake_package for built in distinct):
        shutil.copyfile(HEADERS / "python_package.cmake", place / "python_package.cmake")
    (place / "CMakeLists.txt").write_text(_cmake(headers, distinct))


def _folder_of(built: Built) -> str:
    """The folder of an engine's adapter among the sources: the engine's name without its version."""
    return built.engine.partition("==")[0]


def _copy_sources(sources: Sequence[Path], roots: Sequence[Path], shared: Path, own: Path) -> None:
    """Copy sources and the files that they include: opbridge's headers to ``shared``, other files to ``own``."""
    for file in source_files(sources, [HEADERS]):
        # Included files keep their place relative to the file that includes them.
        root = next((root for root in (HEADERS, *roots) if file.is_relative_to(root)), file.parent)
        target = (shared if root == HEADERS else own) / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def _cmake(headers: Sequence[Path], libraries: Sequence[Built]) -> str:
    """A CMakeLists.txt that builds the libraries again, on this platform or another."""
    units = " ".join(f"src/{header.name}" for header in headers)
    return f"""\
cmake_minimum_required(VERSION 3.16)
project(opbridge_kernels CXX)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(KERNELS {units})
set_source_files_properties(${{KERNELS}} PROPERTIES LANGUAGE CXX HEADER_FILE_ONLY OFF COMPILE_OPTIONS "-x;c++")
""" + "".join(_cmake_target(built) for built in libraries)


def _cmake_target(built: Built) -> str:
    name = built.name
    adapter = f" src/{_folder_of(built)}/{built.adapter.name}" if built.adapter is not None else ""
    options = " ".join(flag for flag in compile_flags() if not flag.startswith("-std="))
    linking = " ".join(flag for flag in link_flags() if flag != "-shared")
    library = f"""
add_library({name} SHARED ${{KERNELS}}{adapter})
target_include_directories({name} PRIVATE src)
target_compile_options({name} PRIVATE {options})
if(NOT APPLE AND NOT WIN32)
  target_link_options({name} PRIVATE {linking})
endif()
set_target_properties({name} PROPERTIES PREFIX "" LINKER_LANGUAGE CXX)
{built.flags.cmake.replace("{target}", name)}"""
    if built.flags.cmake_package is None:
        return library
    package, python_package = built.flags.cmake_package
    return f"""
include(python_package.cmake)
find_engine({package} {python_package})
if({package}_FOUND)
{library.strip()}
endif()
"""
