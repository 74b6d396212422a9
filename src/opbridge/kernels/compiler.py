"""Compile kernels into a cache that several processes share, once per content.

Each source file becomes an object file, named by a hash of everything that affects it, so that an engine's adapter is
compiled once for all kernels. Files appear in the cache by rename.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from opbridge.errors import BuildError
from opbridge.kernels.adapter_flags import NO_FLAGS, AdapterFlags
from opbridge.kernels.binary import binary_platform, is_object
from opbridge.kernels.cache import cache_folder, made_once
from opbridge.kernels.compiler_errors import error_lines
from opbridge.kernels.sources import include_folders, source_files
from opbridge.kernels.toolchain import Compiler, find_compiler, native_instructions

__all__ = ["HEADERS", "build", "compile_adapter", "compile_flags", "link_flags"]

HEADERS = Path(__file__).parent
"""The folder of opbridge.h, for the compiler's option -I."""


def build(
    sources: Sequence[Path],
    *,
    adapters: Sequence[Path] = (),
    adapter_flags: AdapterFlags = NO_FLAGS,
    native: bool = False,
    sanitize: bool = False,
    includes: Sequence[Path] = (),
    extra_compile_flags: Sequence[str] = (),
    extra_link_flags: Sequence[str] = (),
) -> Path:
    """Compile kernels and engines' adapters into one shared library.

    Args:
        sources: The kernels' files, headers or ``.cc``.
        adapters: Engines' adapters, such as ``opbridge.engines.onnxruntime.adapter_source()``.
        adapter_flags: The compiler flags of the adapters (not of the kernels), and the linker flags of the library.
        native: Use all instructions of this machine's processor; the library may then not run on another.
        sanitize: Use AddressSanitizer and UndefinedBehaviorSanitizer, whose runtime the process must preload.
        includes: Additional folders of included files.
        extra_compile_flags: Additional compiler flags of the adapters.
        extra_link_flags: Additional linker flags of the library.

    Returns:
        The library in the cache: the same file for the same contents, flags and compiler.

    Raises:
        BuildError: A source is missing or does not compile, a header-only dependency is missing, or there is no
            compiler.
    """
    files = [*sources, *adapters]
    for file in files:
        if not file.is_file():
            raise BuildError(f"There is no kernel source at {str(file)!r}.", fix="check the path.")
    compiler = find_compiler()
    folders = [*includes, *include_folders(files)]
    flags = [*compile_flags(native=native, sanitize=sanitize), *extra_compile_flags]
    linking = [*link_flags(sanitize=sanitize), *adapter_flags.link, *extra_link_flags]
    if sanitize and compiler.is_clang:
        # By default clang links the sanitizers' runtime into programs but not into libraries.
        linking.append("-shared-libasan")
    machine = native_instructions(compiler) if native else ""
    flags_of = {file: [*flags, *(adapter_flags.compile if file in adapters else ())] for file in files}
    keys = {file: _key(compiler, [*flags_of[file], machine], folders, file) for file in files}
    key = _hash([*keys.values(), compiler.version, *linking])
    folder = cache_folder()

    def link(target: Path) -> None:
        def compiled(file: Path) -> str:
            return str(_object(compiler, flags_of[file], folders, file, keys[file], folder))

        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            objects = list(pool.map(compiled, files))
        _run([*compiler.command, *objects, *linking, "-o", str(target)], compiler, sources)
        _check_written(compiler, target.is_file() and binary_platform(target) is not None, "library")

    return made_once(folder / f"{sources[0].stem if sources else 'kernels'}-{key[:32]}{_suffix()}", link)


def compile_adapter(adapter: Path) -> Path:
    """Compile only an engine's adapter into the cache, so that the first kernel need not wait for it.

    Returns:
        The object file, which :func:`build` then finds.

    Raises:
        BuildError: There is no compiler, or the adapter does not compile.
    """
    compiler = find_compiler()
    folders, flags = include_folders([adapter]), compile_flags()
    key = _key(compiler, [*flags, ""], folders, adapter)
    return _object(compiler, flags, folders, adapter, key, cache_folder())


def compile_flags(*, native: bool = False, sanitize: bool = False) -> list[str]:
    """The compiler's flags for kernels.

    Args:
        native: Use all instructions of this machine's processor.
        sanitize: Use the sanitizers, as in :func:`build`.
    """
    # Kernels use neither errno nor floating-point traps; without them more loops are vectorized, with equal results.
    flags = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math"]
    if sanitize:
        return [*flags, "-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", *_NO_RECOVERY]
    # An assert in a dependency would end the process.
    flags += ["-O3", "-DNDEBUG"]
    # Fused multiply-add rounds once, and a portable library must give the same results on all machines.
    return [*flags, "-march=native"] if native else [*flags, "-ffp-contract=off"]


_SECONDS = 1800
"""The time limit for a run of the compiler."""

_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded|File too large|file size limit", re.IGNORECASE)
_NO_RECOVERY = ["-fno-sanitize-recover=all"]


def link_flags(*, sanitize: bool = False) -> list[str]:
    """The flags that link kernels into a library.

    Args:
        sanitize: Use the sanitizers, as in :func:`build`.
    """
    if sys.platform == "darwin":
        return ["-shared", "-fvisibility=hidden", *(["-fsanitize=address,undefined"] if sanitize else [])]
    if sys.platform == "win32":
        return ["-shared"]
    # Each of two libraries in one process must use its own functions.
    flags = ["-shared", "-Wl,-Bsymbolic"]
    return [*flags, "-fsanitize=address,undefined"] if sanitize else [*flags, "-Wl,-z,defs"]


def _suffix() -> str:
    return {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


def _key(compiler: Compiler, flags: Sequence[str], folders: Sequence[Path], file: Path) -> str:
    """The hash of everything that affects an object file: contents, not paths, so that moved files stay compiled."""
    contents = [
        f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in source_files([file], [*folders, HEADERS])
    ]
    return _hash([compiler.version, *flags, *map(str, folders), *contents])


def _object(
    compiler: Compiler, flags: Sequence[str], folders: Sequence[Path], file: Path, key: str, cache: Path
) -> Path:
    def compile_file(target: Path) -> None:
        paths = [f"-I{folder}" for folder in (HEADERS, *folders)]
        command = [*compiler.command, *flags, *paths, "-c", "-x", "c++", str(file.absolute()), "-o", str(target)]
        _run(command, compiler, [file])
        _check_written(compiler, target.is_file() and is_object(target), "object file")

    return made_once(cache / "objects" / f"{file.stem}-{key[:32]}.o", compile_file)


def _check_written(compiler: Compiler, is_good: bool, what: str) -> None:
    """Raise BuildError if the compiler succeeded, but did not write what it was asked for; nothing is cached then."""
    if not is_good:
        raise BuildError(
            f"The compiler {shlex.join(compiler.command)} reported no error, but wrote no {what}.",
            fix="name a working g++ or clang++ in the environment variable CXX, without options such as -fsyntax-only.",
        )


def _run(command: Sequence[str], compiler: Compiler, sources: Sequence[Path]) -> None:
    # The error parser reads English messages.
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        with tempfile.TemporaryFile() as output:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, timeout=_SECONDS
            ).returncode
            output.seek(0)
            text = output.read().decode(errors="replace")
    except OSError as error:
        raise BuildError(
            f"The compiler {compiler.command[0]} can't be started: {error.strerror}.",
            fix="name a working C++ compiler in the environment variable CXX.",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(
            f"The compiler {compiler.command[0]} did not finish within {_SECONDS} seconds.",
            fix="compile a smaller kernel, or name another C++ compiler in the environment variable CXX.",
            details=shlex.join(command),
        ) from error
    if code == 0:
        return
    names = ", ".join(source.name for source in sources)
    if full := _NO_ROOM.search(text):
        raise BuildError(
            f"{names} can't be compiled, because a disk is full: {full[0]}.",
            fix="free some space in the temporary folder and in the cache, or set TMPDIR and OPBRIDGE_CACHE to folders "
            "that have room.",
            details=f"{shlex.join(command)}\n{text}",
        )
    lines = error_lines(text, HEADERS)
    if not lines:
        ended = f"was ended by signal {-code}" if code < 0 else f"exited with {code} and no error line"
        lines = [f"the compiler {compiler.command[0]} {ended}"]
    raise BuildError(
        "\n".join([f"{names} does not compile:", *(f"  {line}" for line in lines)]),
        fix="correct these lines; opbridge.h explains what a kernel is made of.",
        details=f"{shlex.join(command)}\n{text}",
    )
