"""Stage 6: ``build`` the kernels of a model into one library for an engine."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opbridge.engines.base import Engine
from opbridge.errors import EngineError, InputError
from opbridge.kernels.binary import own_platform
from opbridge.kernels.compiler import HEADERS, compile_flags, link_flags
from opbridge.kernels.compiler import build as compile_library
from opbridge.kernels.declared import KernelSpec
from opbridge.kernels.library import KernelLibrary
from opbridge.kernels.sources import source_files

__all__ = ["Built", "build"]


@dataclasses.dataclass(frozen=True)
class Built:
    """The kernels of a model, compiled for an engine.

    Attributes:
        engine: The engine's name.
        library: The library, described; it holds the engine's adapter too.
        specs: What it was compiled from.
        adapter: The engine's adapter.
    """

    engine: str
    library: KernelLibrary
    specs: tuple[KernelSpec, ...]
    adapter: Path

    @property
    def targets(self) -> frozenset[str]:
        """``"domain::name"`` of each kernel in the library."""
        return frozenset(operator.target for operator in self.library.operators)

    @property
    def file(self) -> str:
        """The library's path in a bundle; not the bare name of the engine, which is a Python module."""
        return f"kernels/{self.engine}_kernels{self.library.path.suffix}"

    def write(self, folder: Path) -> None:
        """Put the library, its sources and a CMakeLists.txt that builds it elsewhere into a bundle."""
        place = folder / "kernels"
        sources = place / "src"
        sources.mkdir(parents=True, exist_ok=True)
        headers = [spec.header for spec in self.specs]
        roots = [HEADERS, self.adapter.parent, *(header.parent for header in headers)]
        for file in source_files([*headers, self.adapter], [HEADERS]):
            # Included files keep their place beside what includes them.
            inside = next((file.relative_to(root) for root in roots if file.is_relative_to(root)), Path(file.name))
            (sources / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, sources / inside)
        shutil.copyfile(self.library.path, folder / self.file)
        (place / "CMakeLists.txt").write_text(_cmake(f"{self.engine}_kernels", headers, self.adapter))

    def to_dict(self) -> dict[str, Any]:
        """What a manifest says of the library."""
        return {
            "engine": self.engine,
            "file": self.file,
            "platform": own_platform(),
            "native": any(spec.native for spec in self.specs),
            "operators": [operator.target for operator in self.library.operators],
        }


def build(specs: Sequence[KernelSpec], engine: Engine) -> Built:
    """Compile kernels and the engine's adapter into one library; cached by content.

    Raises:
        BuildError: A kernel does not compile, or there is no compiler.
        InputError: A kernel's file does not have the operator that it was declared for.
        EngineError: The engine takes no kernels.
    """
    adapter = engine.kernel_adapter
    if adapter is None:
        raise EngineError(
            f"{engine.name} takes no kernels of opbridge's.", fix="export for it without kernels: the bodies run."
        )
    path = compile_library(
        list(dict.fromkeys(spec.header for spec in specs)), adapters=[adapter], native=any(s.native for s in specs)
    )
    library = KernelLibrary(path)
    offered = {operator.target for operator in library.operators}
    for spec in specs:
        if spec.target not in offered:
            raise InputError(
                f"{spec.header.name} has no kernel for {spec.target!r}, for which it is declared at {spec.source}; "
                f"it has: {', '.join(sorted(offered))}.",
                fix="make the name in OPBRIDGE_OPERATOR's schema and the declared one the same.",
            )
    return Built(engine.name, library, tuple(specs), adapter)


def _cmake(name: str, headers: Sequence[Path], adapter: Path) -> str:
    """Builds the library again, on this platform or another."""
    units = " ".join(f"src/{header.name}" for header in headers)
    options = " ".join(flag for flag in compile_flags() if not flag.startswith("-std="))
    linking = " ".join(flag for flag in link_flags() if flag != "-shared")
    return f"""\
cmake_minimum_required(VERSION 3.16)
project(opbridge_kernels CXX)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(KERNELS {units})
set_source_files_properties(${{KERNELS}} PROPERTIES LANGUAGE CXX HEADER_FILE_ONLY OFF COMPILE_OPTIONS "-x;c++")
add_library({name} SHARED ${{KERNELS}} src/{adapter.name})
target_include_directories({name} PRIVATE src)
target_compile_options({name} PRIVATE {options})
if(NOT APPLE AND NOT WIN32)
  target_link_options({name} PRIVATE {linking})
endif()
set_target_properties({name} PROPERTIES PREFIX "" LINKER_LANGUAGE CXX)
"""
