"""Find a C++ compiler."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys

from opbridge.errors import BuildError

__all__ = ["Compiler", "find_compiler", "native_instructions"]

_SECONDS = 60
"""The time limit for a question to the compiler."""


@dataclasses.dataclass(frozen=True)
class Compiler:
    """A C++ compiler that understands GCC's options.

    Attributes:
        command: The command with its options.
        version: The compiler's name, version and target, as it prints them.
    """

    command: tuple[str, ...]
    version: str

    @property
    def is_clang(self) -> bool:
        """Whether the compiler is clang rather than GCC."""
        return "clang" in self.version.lower()


def find_compiler() -> Compiler:
    """The compiler that the environment variable ``CXX`` names, otherwise g++, clang++ or c++ from the path.

    Raises:
        BuildError: There is no compiler, or it does not start.
    """
    try:
        given = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise BuildError(
            f"The environment variable CXX is not a command: {os.environ['CXX']!r} ({error}).",
            fix="correct CXX, or unset it to use g++ or clang++ from the path.",
        ) from error
    if given:
        if shutil.which(given[0]) is None:
            raise BuildError(
                f"The environment variable CXX names the compiler {given[0]!r}, which does not exist.",
                fix="correct CXX, or unset it to use g++ or clang++ from the path.",
            )
        return _described(tuple(given))
    for name in ("g++", "clang++", "c++"):
        found = shutil.which(name)
        if found is not None:
            return _described((found,))
    raise BuildError(
        "A kernel needs a C++ compiler, and there is no g++ or clang++ on the path.", fix=_how_to_install()
    )


def _how_to_install() -> str:
    if sys.platform == "win32":
        return "install one: 'conda install -c conda-forge gxx' or MSYS2's g++; or name one in CXX."
    return (
        "install one: 'apt install g++' on Debian and Ubuntu, 'xcode-select --install' or 'brew install gcc' on macOS, "
        "'conda install -c conda-forge cxx-compiler' anywhere; or name one in the environment variable CXX."
    )


@functools.cache
def _described(command: tuple[str, ...]) -> Compiler:
    try:
        answers = [
            subprocess.run(
                [*command, option], capture_output=True, text=True, errors="replace", check=True, timeout=_SECONDS
            ).stdout
            for option in ("--version", "-dumpmachine")
        ]
        version = f"{answers[0].splitlines()[0]} {answers[1].strip()}"
    except (OSError, IndexError, subprocess.SubprocessError) as error:
        details = getattr(error, "stderr", None) or str(error)
        raise BuildError(
            f"The compiler {shlex.join(command)} does not print its version: it is broken, or neither g++ nor clang++.",
            fix="name a working g++ or clang++ in the environment variable CXX.",
            details=details,
        ) from error
    return Compiler(command, version)


@functools.cache
def native_instructions(compiler: Compiler) -> str:
    """The compiler's target for ``-march=native``; a library built for it may not run on another processor."""
    command = [*compiler.command, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True, timeout=_SECONDS)
    except subprocess.SubprocessError as error:
        raise BuildError(
            f"The compiler {shlex.join(compiler.command)} can't build for this machine's own processor.",
            fix="build without native=True.",
            details=str(getattr(error, "stderr", None) or error),
        ) from error
    return hashlib.sha256(answer.stdout.encode()).hexdigest()
