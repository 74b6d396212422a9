"""Examines the environment: the components that opbridge uses, their versions, and how to install missing ones."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping

from opbridge import engines
from opbridge.errors import InputError, described_error
from opbridge.records import Record

__all__ = ["Component", "Environment", "examine"]

_PACKAGES = (
    ("numpy", "numpy", "arrays", True),
    ("ml-dtypes", "ml_dtypes", "bfloat16 and float8 arrays", True),
    ("rich", "rich", "tables and progress", True),
    ("torch", "torch", "capturing models", True),
    ("onnx", "onnx", "writing models", True),
    ("onnx-ir", "onnx_ir", "writing models", True),
    ("onnxscript", "onnxscript", "translating operators", True),
    ("torchvision", "torchvision", "operators of vision models", False),
)
_IMPORT_SECONDS = 120
_IMPORT_PROGRAM = """
import importlib, json, sys
problems = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        problems[name] = (type(error).__name__ + ": " + str(error)).strip().splitlines()[0]
print("\\n" + json.dumps(problems))
"""


@dataclasses.dataclass(frozen=True)
class Component(Record):
    """A component that opbridge uses.

    Attributes:
        name: The name of the distribution or program.
        kind: ``"python"``, ``"package"``, ``"engine"``, ``"environment"`` (of another version of an engine) or
            ``"compiler"``.
        purpose: The use of the component.
        status: ``"ok"``, ``"missing"``, ``"too old"`` or ``"broken"``.
        version: The installed version; None if it is missing.
        required: Whether export, run and verify need the component.
        detail: A description of the problem, if there is one.
        fix: The command that fixes the problem; empty if there is none.
    """

    name: str
    kind: str
    purpose: str
    status: str
    version: str | None = None
    required: bool = False
    detail: str = ""
    fix: str = ""


@dataclasses.dataclass(frozen=True)
class Environment(Record):
    """The components of opbridge on this machine.

    Attributes:
        system: The operating system and processor.
        cpus: The number of processors that this process may use.
        components: The components that opbridge uses, with their states.
    """

    json_keys = ("ok", "system", "cpus", "components")

    system: str
    cpus: int
    components: tuple[Component, ...]

    @property
    def ok(self) -> bool:
        """Whether every required component is installed and works."""
        return all(component.status == "ok" for component in self.components if component.required)


def examine() -> Environment:
    """Examine this machine. Each installed package is imported in a child process to check whether it works."""
    minimums = _minimums()
    modules = [module for name, module, _, _ in _PACKAGES if _version(name)]
    problems = _import_problems(modules)
    components = [_python()]
    for name, module, purpose, required in _PACKAGES:
        components.append(_package(name, "package", purpose, required, problems.get(module), minimums))
    for name, engine in dict(_engines()).items():
        required = engine == "onnxruntime"
        install = engines.get(engine).install
        components.append(
            _package(name, "engine", f"engine {engine}", required, _engine_problem(engine), minimums, install)
        )
    components += _environments()
    components.append(_compiler())
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Environment(f"{platform.system()} {platform.release()} {platform.machine()}", cpus, tuple(components))


def _python() -> Component:
    version = platform.python_version()
    fine = sys.version_info >= (3, 11)
    return Component(
        "python",
        "python",
        "everything",
        "ok" if fine else "too old",
        version,
        True,
        fix="" if fine else "Python >= 3.11",
    )


def _package(
    name: str,
    kind: str,
    purpose: str,
    required: bool,
    problem: str | None,
    minimums: Mapping[str, str],
    install: str = "",
) -> Component:
    version = _version(name)
    minimum = minimums.get(name, "")
    requirement = f'pip install "{name}>={minimum}"' if minimum else install or f"pip install {name}"
    if version is None:
        return Component(name, kind, purpose, "missing", None, required, fix=requirement)
    if minimum and _numbers(version) < _numbers(minimum):
        detail = f"at least {minimum} is needed"
        return Component(name, kind, purpose, "too old", version, required, detail, requirement)
    if problem:
        fix = f"pip install --force-reinstall {name}"
        return Component(name, kind, purpose, "broken", version, required, problem, fix)
    return Component(name, kind, purpose, "ok", version, required)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _minimums() -> dict[str, str]:
    """The minimum versions in opbridge's package metadata, by distribution."""
    try:
        lines = importlib.metadata.requires("opbridge") or []
    except importlib.metadata.PackageNotFoundError:
        return {}  # opbridge runs from a source tree that is not installed.
    matches = (re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*>=\s*([\w.]+)", line) for line in lines)
    return {match[1].lower(): match[2] for match in matches if match}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3])


def _engines() -> Iterable[tuple[str, str]]:
    for name in engines.names():
        yield engines.get(name).package, name


def _environments() -> Iterable[Component]:
    """The environments of other engine versions, which ``--engine NAME==VERSION`` created."""
    from opbridge.engines.environments import cached_environments

    for item in cached_environments():
        name = f"{item.package}=={item.version}"
        yield Component(name, "environment", f"--engine {name}", "ok", item.version, detail=str(item.folder))


def _engine_problem(name: str) -> str | None:
    try:
        return None if engines.get(name).version else "it states no version"
    except InputError as error:
        return error.message
    except Exception as error:
        return described_error(error)


def _import_problems(modules: list[str]) -> dict[str, str]:
    """The errors of importing the modules, in one child process or, if that fails, in one per module."""
    command = [sys.executable, "-c", _IMPORT_PROGRAM, *modules]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False)
        problems: dict[str, str] = json.loads(child.stdout.splitlines()[-1])
        return problems
    except subprocess.TimeoutExpired:
        reason = f"importing does not end within {_IMPORT_SECONDS} s"
    except (ValueError, IndexError):
        reason = f"importing ends the process with code {child.returncode}"
    if len(modules) == 1:
        return {modules[0]: reason}
    return {name: problem for module in modules for name, problem in _import_problems([module]).items()}


def _compiler() -> Component:
    purpose = "compiling kernels"
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++")):
        path = shutil.which(name)
        if path is None:
            continue
        child = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        first = (child.stdout.splitlines() or [""])[0]
        version = re.search(r"\d+(\.\d+)+", first)
        if child.returncode == 0:
            return Component(name, "compiler", purpose, "ok", version[0] if version else first, detail=first)
    fixes = {"Darwin": "xcode-select --install", "Windows": "winget install LLVM.LLVM"}
    fix = fixes.get(platform.system(), "sudo apt install g++   # or your distribution's equivalent")
    return Component("C++ compiler", "compiler", purpose, "missing", fix=fix)
