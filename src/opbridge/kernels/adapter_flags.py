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
        cmake: Lines for a bundle's CMakeLists.txt that find the engine on another machine; ``{target}`` is the library.
    """

    compile: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    cmake: str = ""


NO_FLAGS = AdapterFlags()
"""The flags of an adapter that needs none."""
