"""The flags for compiling and linking an engine's adapter."""

from __future__ import annotations

import dataclasses

__all__ = ["NO_FLAGS", "AdapterFlags"]


@dataclasses.dataclass(frozen=True)
class AdapterFlags:
    """The flags of an adapter. Kernels are compiled without them, so that one object serves every engine.

    Attributes:
        compile: Additional compiler flags. The engine's headers are not hashed, so these must include its version.
        link: Additional linker flags.
        cmake_package: The engine's CMake package and its Python package, by which a bundle's CMakeLists.txt finds it.
        cmake: Lines for that file which use the package; ``{target}`` is the library.
    """

    compile: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    cmake_package: tuple[str, str] | None = None
    cmake: str = ""


NO_FLAGS = AdapterFlags()
"""The flags of an adapter that needs none."""
