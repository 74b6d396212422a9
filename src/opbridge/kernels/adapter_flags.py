"""What an engine's adapter of kernels is compiled and linked with."""

from __future__ import annotations

import dataclasses

__all__ = ["NO_FLAGS", "AdapterFlags"]


@dataclasses.dataclass(frozen=True)
class AdapterFlags:
    """The flags of an adapter. Kernels are compiled without them, so that one object serves every engine.

    Attributes:
        compile: Further flags of the compiler. The engine's headers are not hashed, so its version is to be among them.
        link: Further flags of the linker.
        cmake: Lines for the CMakeLists.txt of a bundle, which find the engine elsewhere; ``{target}`` is the library.
    """

    compile: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    cmake: str = ""


NO_FLAGS = AdapterFlags()
"""Of an adapter that needs none."""
