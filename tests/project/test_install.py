"""Installing from source: adapters are compiled if they can be, and it never fails for want of a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import EXAMPLES, ROOT

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
    compiler.build([EXAMPLES / "my_add.h"], adapters=[adapter_source()])
    assert [(file, file.stat().st_mtime_ns) for file in tmp_path.rglob("adapter-*.o")] == [(compiled, made)]


def test_without_a_compiler_nothing_is_compiled_and_nothing_fails(tmp_path: Path) -> None:
    printed = install({"PATH": str(tmp_path), "CXX": "", "OPBRIDGE_CACHE": str(tmp_path / "cache")})
    assert printed == "opbridge: the adapters are compiled when they are first needed (BuildError)\n"
    assert not list(tmp_path.rglob("*.o"))
