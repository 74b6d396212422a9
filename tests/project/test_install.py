"""Installing: the wheel and the sdist hold the whole package, and a missing compiler is no error.

From source, adapters are compiled if they can be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from places import ROOT, TUTORIAL

from opbridge.engines.onnxruntime import adapter_source
from opbridge.kernels import compiler

pytestmark = [pytest.mark.newest, pytest.mark.slow]

PROGRAM = """
import sys, types
setuptools = types.ModuleType("setuptools")
command = types.ModuleType("setuptools.command.build_py")
class build_py:
    def run(self): pass
command.build_py = build_py
setuptools.setup = lambda cmdclass: cmdclass["build_py"]().run()
sys.modules.update({"setuptools": setuptools, "setuptools.command": types.ModuleType("c"), command.__name__: command})
exec(compile(open("setup.py").read(), "setup.py", "exec"), {"__file__": "setup.py", "__name__": "__main__"})
"""


def install(environment: dict[str, str]) -> str:
    """Run what setup.py adds to an installation, without setuptools, which makes no difference to it."""
    command = [sys.executable, "-I", "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("g++") is None, reason="not run: needs g++")
def test_the_adapter_is_compiled_and_the_first_kernel_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert install({"OPBRIDGE_CACHE": str(tmp_path)}) == ""
    (compiled,) = tmp_path.rglob("adapter-*.o")
    monkeypatch.setenv("OPBRIDGE_CACHE", str(tmp_path))
    assert compiler.compile_adapter(adapter_source()) == compiled
    made = compiled.stat().st_mtime_ns
    compiler.build([TUTORIAL / "my_add.h"], adapters=[adapter_source()])
    assert [(file, file.stat().st_mtime_ns) for file in tmp_path.rglob("adapter-*.o")] == [(compiled, made)]


def test_without_a_compiler_nothing_is_compiled_and_nothing_fails(tmp_path: Path) -> None:
    printed = install({"PATH": str(tmp_path), "CXX": "", "OPBRIDGE_CACHE": str(tmp_path / "cache")})
    assert printed == "opbridge: the adapters are compiled when they are first needed (BuildError)\n"
    assert not list(tmp_path.rglob("*.o"))


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel and an sdist, made from a copy of the sources."""
    pytest.importorskip("setuptools")
    place = tmp_path_factory.mktemp("distributions")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", place / "source" / "src", ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place / "source")
    program = "from setuptools.build_meta import *; print(build_sdist('..')); print(build_wheel('..'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=place / "source",
        env={**os.environ, "CXX": "", "PATH": str(place), "OPBRIDGE_CACHE": str(place / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,), (sdist,) = place.glob("*.whl"), place.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_and_the_sdist_hold_every_file_of_the_package(distributions: tuple[Path, Path]) -> None:
    files = [file for file in (ROOT / "src" / "opbridge").rglob("*") if file.is_file()]
    expected = {file.relative_to(ROOT).as_posix() for file in files if "__pycache__" not in file.parts}
    wheel, sdist = distributions
    with zipfile.ZipFile(wheel) as archive:
        held = {f"src/{name}" for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert held == expected
    assert expected - packed == set()
