"""Kernels that run in several threads, under ThreadSanitizer: none writes what another thread reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_cases import FOLDER, SANITIZE
from places import ROOT

from opbridge.kernels.compiler import build
from opbridge.kernels.toolchain import find_compiler

# All threads add to one number.
RACING = """#include "opbridge.h"
void total(opbridge::Call& call) {
  const auto x = call.input<float>(0);
  const auto y = call.output<float>(0);
  call.parallel_for(x.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[0] += x[i];
  });
}
OPBRIDGE_OPERATOR(total, opbridge::shape_of_first, "mylib::total(float32 x) -> float32 y")
"""
PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from opbridge.kernels.library import KernelLibrary
KernelLibrary(Path(sys.argv[1])).run(sys.argv[2], eval(sys.argv[3]), eval(sys.argv[4]), threads=4)
"""
CATALOG = ROOT / "src" / "opbridge" / "catalog" / "ops"
TUTORIAL = ROOT / "examples" / "tutorial"
VECTOR = "np.linspace(-4, 4, 10_000_000, dtype='float32')"
MATRICES = "np.random.default_rng(0).standard_normal((4000, 12, 12))"
CASES = {
    "clamp_swish": (TUTORIAL / "clamp_swish.h", "mylib::clamp_swish", f"[{VECTOR}]", "{}"),
    "roll": (FOLDER / "roll.h", "mylib::roll", f"[{VECTOR}.reshape(1000, -1)]", "{'shifts': [3], 'axes': [1]}"),
    "cholesky": (
        CATALOG / "linalg" / "cholesky.h",
        "opbridge::Cholesky",
        f"[(lambda a: a @ a.swapaxes(1, 2))({MATRICES})]",
        "{'upper': 0}",
    ),
    "deform_conv2d": (
        CATALOG / "vision" / "deform_conv2d.h",
        "torchvision::deform_conv2d",
        "[np.ones(n, 'float32') for n in ((2, 8, 64, 64), (8, 8, 3, 3), (2, 18, 62, 62), (2, 9, 62, 62), (8,))]",
        "{'stride_h': 1, 'stride_w': 1, 'pad_h': 0, 'pad_w': 0, 'dilation_h': 1, 'dilation_w': 1, 'groups': 1, "
        "'offset_groups': 1, 'use_mask': 1}",
    ),
}
"""By name: the kernel's file, the operator, and its inputs and attributes, large enough for four threads at once."""


def _runtime() -> str:
    """The library that has to be in the process before all others; empty if the compiler has none."""
    if sys.platform != "linux" or find_compiler().is_clang:
        return ""
    command = [*find_compiler().command, "-print-file-name=libtsan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return found if Path(found).is_absolute() else ""


pytestmark = [
    pytest.mark.newest,
    pytest.mark.slow,
    pytest.mark.skipif(SANITIZE or not _runtime(), reason="this compiler has no ThreadSanitizer to preload"),
]


def run(source: Path, operator: str, inputs: str, attributes: str) -> subprocess.CompletedProcess[str]:
    """Run a kernel once under ThreadSanitizer."""
    compiling = ["-fsanitize=thread", "-g", "-O1"]
    library = build([source], extra_compile_flags=compiling, extra_link_flags=["-fsanitize=thread", "-Wl,-z,undefs"])
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(library), operator, inputs, attributes],
        env={**os.environ, "LD_PRELOAD": _runtime(), "TSAN_OPTIONS": "exitcode=66", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_race_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "racing.h").write_text(RACING)
    done = run(tmp_path / "racing.h", "mylib::total", "[np.ones(20_000_000, 'float32')]", "{}")
    assert done.returncode == 66
    assert "ThreadSanitizer: data race" in done.stderr
    assert "racing.h" in done.stderr


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_has_no_race(name: str) -> None:
    done = run(*CASES[name])
    assert done.returncode == 0, done.stderr[:3000]
    assert "ThreadSanitizer" not in done.stderr
