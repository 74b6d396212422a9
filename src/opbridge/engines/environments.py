"""Isolated Python environments, each with one engine in one version, created once by pip and kept in the user's cache.

An environment is a folder that appears by a rename, so it is either complete or absent. A small file next to it records
to which version a request such as ``onnxruntime==1.16`` was resolved; it is written under a lock, so that two processes
that request the same version create the environment once.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from opbridge.atomic import locked_folder
from opbridge.errors import BuildError, EngineError, EngineNotInstalledError, InputError
from opbridge.kernels.cache import cache_folder, is_made, made_once

__all__ = ["EngineEnvironment", "cached_environments", "engine_environment", "is_cached"]

_INSTALL_SECONDS = 900
_VERSION = re.compile(r"\d+(\.\d+)*([abc]|rc|\.?dev|\.?post)?\d*")
# Releases from before NumPy 2 can't be imported with it, although their metadata allows it.
_PINS: tuple[tuple[str, ...], ...] = (("numpy<2",), ())


@dataclasses.dataclass(frozen=True)
class EngineEnvironment:
    """A Python environment that has an engine in some version.

    Attributes:
        package: The engine's distribution.
        version: The version that the imported package reports.
        folder: The folder of the environment.
    """

    package: str
    version: str
    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return _python_of(self.folder)


def engine_environment(package: str, version: str) -> EngineEnvironment:
    """The environment with a package in a version; pip creates it if it is not in the cache.

    Args:
        package: The distribution; its module has the same name.
        version: A full version, or its first numbers: "1.16" is the newest 1.16.x that pip offers.

    Raises:
        InputError: The version is not valid, or pip does not offer it; the message lists the versions that pip offers.
        EngineError: pip can't be reached or fails, or the installed package can't be imported here.
    """
    if not _VERSION.fullmatch(version):
        raise InputError(f"{version!r} is not a version of {package}.", fix=f"write, for example, {package}==1.16.3.")
    record = _record(package, version)
    try:
        if is_made(record) and not _read(record).python.exists():
            record.unlink(missing_ok=True)
        made_once(record, lambda unfinished: _make(package, version, unfinished))
    except (OSError, BuildError, subprocess.SubprocessError) as error:
        raise EngineError(
            f"The environment of {package} {version} can't be made in {record.parent}: {error}.",
            fix="set the environment variable OPBRIDGE_CACHE to a folder that can be written and has room; "
            "python -m venv must work.",
        ) from error
    return _read(record)


def is_cached(package: str, version: str) -> bool:
    """Whether the environment is in the cache, so that :func:`engine_environment` returns at once."""
    return is_made(_record(package, version))


def cached_environments() -> tuple[EngineEnvironment, ...]:
    """Every environment in the cache, sorted by package and version."""
    records = [record for record in sorted(_folder().glob("*.json")) if is_made(record)]
    found = {_read(record).folder: _read(record) for record in records}
    numbers = {folder: [int(n) for n in re.findall(r"\d+", item.version)] for folder, item in found.items()}
    present = [item for item in found.values() if item.python.exists()]
    return tuple(sorted(present, key=lambda item: (item.package, numbers[item.folder])))


def _folder() -> Path:
    # Wheels depend on the Python version.
    return cache_folder() / "engines" / str(sys.implementation.cache_tag)


def _record(package: str, version: str) -> Path:
    return _folder() / f"{package}=={version}.json"


def _read(record: Path) -> EngineEnvironment:
    recorded = json.loads(record.read_text())
    return EngineEnvironment(recorded["package"], recorded["version"], record.parent / recorded["folder"])


def _python_of(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _make(package: str, version: str, record: Path) -> None:
    """Install into a temporary folder, read the installed version, and move the folder to its place."""
    place = _folder()
    with locked_folder(place / f"{package}=={version}") as temporary:
        folder = temporary / "environment"
        installed = _install(folder, package, version)
        target = place / f"{package}-{installed}"
        if target.exists() and not _python_of(target).exists():
            shutil.rmtree(target, ignore_errors=True)
        try:
            os.rename(folder, target)
        except OSError:
            # Another request was resolved to the same version.
            if not _python_of(target).exists():
                raise
        record.write_text(json.dumps({"package": package, "version": installed, "folder": target.name}))


def _install(folder: Path, package: str, version: str) -> str:
    """Create an environment with the package, and return the installed version."""
    problem = ""
    for pins in _PINS:
        shutil.rmtree(folder, ignore_errors=True)
        own_pip = importlib.util.find_spec("pip") is not None
        venv.EnvBuilder(with_pip=not own_pip, symlinks=os.name != "nt").create(folder)
        pip = [sys.executable, "-m", "pip", "--python", str(_python_of(folder))]
        problem = _run_pip(pip if own_pip else [str(_python_of(folder)), "-m", "pip"], package, version, pins)
        if not problem:
            installed, problem = _imported_version(folder, package)
            if installed:
                return installed
    raise EngineNotInstalledError(
        f"{package} {version} can't be used with Python {sys.version.split()[0]} on this machine: {problem}",
        fix="choose another version.",
    )


def _run_pip(pip: Sequence[str], package: str, version: str, pins: Sequence[str]) -> str:
    """Install the package; return the problem, empty if there is none. A missing version or network raises at once."""
    requirement = f"{package}=={version}" + (".*" if re.fullmatch(r"\d+(\.\d+)?", version) else "")
    command = [*pip, "--disable-pip-version-check", "--no-input", "install", "--only-binary=:all:", requirement]
    try:
        child = subprocess.run(
            [*command, "ml_dtypes", *pins], capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"pip did not install {requirement} within {_INSTALL_SECONDS} seconds.",
            fix="check the network, and try again.",
        ) from error
    if child.returncode == 0:
        return ""
    offered = re.search(rf"requirement {re.escape(package)}==\S+ \(from versions: ([^)]*)\)", child.stderr)
    if offered is None:
        lines = [line for line in child.stderr.splitlines() if line.startswith("ERROR")] or ["ERROR: no reason given"]
        return lines[0].removeprefix("ERROR: ")
    versions = [name for name in offered.group(1).split(", ") if "dev" not in name]
    if versions in ([], ["none"]):
        raise EngineError(
            f"pip finds no version of {package} at all, so {version} can't be installed.",
            fix="check the network and pip's index (pip config list), and try again.",
            details=child.stderr,
        )
    raise InputError(
        f"pip offers no {package} {version} for Python {sys.version.split()[0]} on this machine. "
        f"It offers: {', '.join(versions)}.",
        fix=f"choose one of these, for example {package}=={versions[0]}, the oldest.",
        details=child.stderr,
    )


def _imported_version(folder: Path, package: str) -> tuple[str, str]:
    """The version that the package reports, and why it can't be imported; one of the two is empty."""
    program = f"import {package}, ml_dtypes; print({package}.__version__)"
    command = [str(_python_of(folder)), "-I", "-c", program]
    child = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    if child.returncode == 0:
        return child.stdout.split()[-1], ""
    lines = [line.strip() for line in child.stderr.splitlines() if line.strip()]
    return "", lines[-1] if lines else f"importing it ends the process with code {child.returncode}"
